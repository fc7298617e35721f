"""What a Python oracle sees: `interesting(case)` is called with a `Candidate`.

The module may define more, all of it optional:

- ``setup()`` and ``teardown()``, called once a process: keep a browser or a session warm;
- ``identity() -> str``: versions that the verdict depends on; part of the cache's key;
- ``JOBS = 1``: so many questions at a time and no more, for what a neighbour would disturb: a
  timing, a device that is there once (the default of ``--jobs``);
- ``suspects(case) -> list[str]``: names of values or nodes to look at first;
- ``hold(case) -> dict``: parameters of `interesting` that are measured once, on the original.

`identity` and `suspects` are given those of the settings for which they have parameters.

Imports of large packages are inside the methods: an oracle that crashes in every second question
pays for them each time, and many need none.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from onnxreduce.verdict import Verdict

if TYPE_CHECKING:
    import onnx

    from onnxreduce.case import InputValue


class Candidate:
    """A model on disk with its inputs, both loaded when they are first looked at.

    Attributes:
        model_path: the file, absolute; its external data is beside it. Never changed by the
            reducer, and gone after the verdict.
        inputs_path: what an executable oracle gets as its second argument.
    """

    def __init__(self, model_path: Path, inputs_path: Path) -> None:
        self.model_path = model_path
        self.inputs_path = inputs_path

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The model with its weights. Above 2 GB work with `model_path` instead."""
        import onnx

        return onnx.load(self.model_path)

    @cached_property
    def inputs(self) -> dict[str, InputValue]:
        """By name of the graph input: a tensor, or a list of them for a sequence.

        An optional input that is empty has no entry.
        """
        import numpy as np

        with np.load(self.inputs_path, allow_pickle=False) as archive:
            arrays = dict(archive)
        # Sequences are told by names such as "s[0]", and need the model's types as well.
        if all(a.dtype.kind in "fibc" and "[" not in name for name, a in arrays.items()):
            return arrays
        return self._typed_inputs()

    def _typed_inputs(self) -> dict[str, InputValue]:
        """The inputs that an ``.npz`` alone does not tell: bfloat16 and the like, text."""
        import onnx
        import onnx_ir as ir

        from onnxreduce.inputs import load_inputs

        whole = self.__dict__.get("model")
        if whole is None:
            whole = onnx.load(self.model_path, load_external_data=False)
        graph = onnx.GraphProto(name="signature", input=whole.graph.input)
        signature = ir.from_proto(onnx.ModelProto(ir_version=whole.ir_version, graph=graph))
        found = load_inputs(self.inputs_path, signature)
        return {name: value for name, value in found.items() if value is not None}


class Oracle(Protocol):
    """The shape of `interesting`. Parameters after the case are set with ``--set``."""

    def __call__(self, case: Candidate) -> bool | Verdict: ...


def as_verdict(answer: Any) -> Verdict:
    """What `interesting` returned, as a verdict.

    Raises:
        TypeError: it is neither a bool (numpy's too) nor a `Verdict`: most likely a mistake.
    """
    if isinstance(answer, Verdict):
        return answer
    if type(answer).__name__ in ("bool", "bool_"):  # without importing numpy
        return Verdict.interesting() if answer else Verdict.boring()
    raise TypeError(f"interesting() must return a bool or a Verdict, not {answer!r}")
