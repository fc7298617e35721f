"""Whether a candidate is well formed, decided before the oracle is asked.

Bugs in invalid or unloadable models are bugs too, so a check counts only if the original itself
passes it. The checks run from cheap to dear; the first three see the model without its weights.
All of them run in a child process: onnx ends in an assertion on some models.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
import onnx.checker
import onnx.shape_inference

from onnxreduce.activations import Caller, Files
from onnxreduce.case import Case
from onnxreduce.process import WorkerError
from onnxreduce.proto import hollow
from onnxreduce.shapes import FAILURES


@dataclass(frozen=True)
class Skeleton:
    """What the static checks see of a case.

    Attributes:
        content: the serialised model without large tensors.
        missing: which of the main graph's initializers lack their bytes.
    """

    content: bytes
    missing: tuple[int, ...]

    @classmethod
    def of(cls, case: Case) -> Skeleton:
        missing = tuple(part.index for part in case.payloads if part.index is not None)
        return cls(case.encoded.content, missing)

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """Not to be changed."""
        message = onnx.ModelProto()
        message.ParseFromString(self.content)
        return message


Check = Callable[[Skeleton], str | None]
"""Gives the reason why a case fails, in one line; None when it passes."""


@dataclass(frozen=True)
class Checks:
    """The checks that the original passes.

    Attributes:
        static: names of those that look at the model alone (keys of `STATIC`).
        backend: what must run a candidate; None when nothing runs the original.
        worker: where that runs; one thread calls at a time.
        timeout: seconds for a run.
    """

    static: tuple[str, ...]
    backend: str | None
    worker: Caller
    timeout: float | None = None

    @classmethod
    def passed_by(
        cls, case: Case, model_path: Path, worker: Caller, timeout: float | None = None
    ) -> Checks:
        """Those that a case passes.

        Args:
            case: the original.
            model_path: a file of its model, external data beside it.
            worker: runs the model on the trusted backends.
            timeout: seconds for a run.
        """
        anything = cls((), None, worker, timeout)
        static = tuple(name for name in STATIC if anything._look(case, (name,)) is None)
        for backend in ("onnxruntime", "reference"):
            checks = cls(static, backend, worker, timeout)
            if checks._run(case, model_path) is None:
                return checks
        return cls(static, None, worker, timeout)

    def check(self, case: Case, files: Files) -> str | None:
        """Why a candidate is invalid, in one line; None when nothing speaks against it.

        A candidate whose recording is still right is not run: its values are those of a case
        that ran.

        Args:
            case: the candidate.
            files: writes it, when it is to be run.
        """
        reason = self._look(case, self.static)
        if reason is not None:
            return reason
        if self.backend is None or (case.recording is not None and not case.recording.made_up):
            return None
        path = files.write(case)
        try:
            return self._run(case, path)
        finally:
            files.discard(path)

    def _look(self, case: Case, names: tuple[str, ...]) -> str | None:
        if not names:
            return None
        skeleton = Skeleton.of(case)
        try:
            reason: str | None = self.worker.call(
                "onnxreduce.validity:first_failure",
                names,
                skeleton.content,
                skeleton.missing,
                timeout=self.timeout,
            )
        except WorkerError as error:
            return f"{', '.join(names)}: {_line(error)}"
        return reason

    def _run(self, case: Case, model_path: Path) -> str | None:
        arguments = (self.backend, str(model_path), dict(case.inputs))
        try:
            self.worker.call("onnxreduce.recorder:run", *arguments, timeout=self.timeout)
        except WorkerError as error:
            return f"{self.backend}: {_line(error)}"
        return None


def get_ready() -> None:
    """Loads what checks and runs need: in a child, before it is wanted."""
    importlib.import_module("onnxruntime")


def first_failure(names: tuple[str, ...], content: bytes, missing: tuple[int, ...]) -> str | None:
    """The first of the named checks that a serialised skeleton fails, with the reason."""
    skeleton = Skeleton(content, missing)
    for name in names:
        reason = STATIC[name](skeleton)
        if reason is not None:
            return f"{name}: {reason}"
    return None


def check_sorted(skeleton: Skeleton) -> str | None:
    """Every node comes after those whose results it reads, in bodies too."""
    known: set[str] = {""}
    return _first_unsorted(skeleton.proto.graph, known)


def check_model(skeleton: Skeleton) -> str | None:
    """`onnx.checker`, without the weights.

    Outputs without a type pass: a value behind a custom operator has none to declare.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(skeleton.proto)
    for tensor in [*(proto.graph.initializer[i] for i in skeleton.missing), *hollow(proto)]:
        tensor.dims[:] = [0]  # the checker asks for as many bytes as the dims promise
    for output in proto.graph.output:
        if output.type.WhichOneof("value") is None:
            output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            output.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:
        return _line(error)
    return None


def infer_shapes(skeleton: Skeleton) -> str | None:
    """Strict shape inference; weights that matter to it are small, and so in the skeleton."""
    try:
        onnx.shape_inference.infer_shapes(skeleton.proto, check_type=True, strict_mode=True)
    except FAILURES as error:
        return _line(error)
    return None


STATIC: dict[str, Check] = {
    "sorted": check_sorted,
    "checker": check_model,
    "shapes": infer_shapes,
}


def _first_unsorted(graph: onnx.GraphProto, outer: set[str]) -> str | None:
    known = outer | {value.name for value in graph.input}
    known.update(tensor.name for tensor in graph.initializer)
    known.update(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        for name in node.input:
            if name not in known:
                return f"{node.op_type} reads {name}, which is not made before"
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                reason = _first_unsorted(body, known)
                if reason is not None:
                    return reason
        known.update(node.output)
    for value in graph.output:
        if value.name not in known:
            return f"no node makes the output {value.name}"
    return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
