"""What a Python oracle sees: `interesting(case)` is called with a `Candidate`.

The module may define more, all of it optional:

- ``setup()`` and ``teardown()``, called once a process: keep a browser or a session warm;
- ``identity() -> str``: versions that the verdict depends on; part of the cache's key;
- ``suspects(case) -> list[str]``: names of values or nodes to look at first.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Protocol

import onnx
import onnx_ir as ir

from onnxreduce.case import InputValue
from onnxreduce.inputs import load_inputs
from onnxreduce.verdict import Verdict


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
        return onnx.load(self.model_path)

    @cached_property
    def inputs(self) -> dict[str, InputValue]:
        """By name of the graph input: a tensor, a list of them for a sequence, or `None`."""
        return load_inputs(self.inputs_path, self._signature())

    def _signature(self) -> ir.Model:
        """The declared inputs alone: they type what an ``.npz`` cannot (bfloat16 and the like)."""
        whole = self.__dict__.get("model")
        if whole is None:
            whole = onnx.load(self.model_path, load_external_data=False)
        graph = onnx.GraphProto(name="signature", input=whole.graph.input)
        return ir.from_proto(onnx.ModelProto(ir_version=whole.ir_version, graph=graph))


class Oracle(Protocol):
    """The shape of `interesting`. Parameters after the case are set with ``--set``."""

    def __call__(self, case: Candidate) -> bool | Verdict: ...
