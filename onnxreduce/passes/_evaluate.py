"""What a constant node computes, by the recording or by onnx's reference implementation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from onnxreduce.case import Case
from onnxreduce.passes._draft import bodies, constant_of
from onnxreduce.tensors import Array

LIMIT = 1 << 24
"""More elements than this are not worth holding as a constant."""


class Evaluator:
    """Values of a case that depend on no input.

    The recording is asked first; then the node is run by itself on the values of its inputs,
    which are found in the same way.
    """

    def __init__(self, case: Case) -> None:
        self._recording = case.recording
        self._opsets = case.model.graph.opset_imports
        self._ir_version = case.model.ir_version or 4
        self._known: dict[ir.Value, Array | None] = {}

    def outputs(self, node: ir.Node, *, main: bool) -> list[Array | None] | None:
        """An array for each output, ``None`` for one without a name.

        Args:
            node: a node whose inputs are constant.
            main: it stands in the main graph; recordings know no values of bodies.

        Returns:
            ``None`` when the node cannot be evaluated, or makes something else than tensors.
        """
        if main and self._recording is not None:
            named = [value for value in node.outputs if value.name]
            recorded = {v: self._recording.get(str(v.name)) for v in named}
            held = [
                x if isinstance(x := recorded.get(v), np.ndarray) else None for v in node.outputs
            ]
            if all(isinstance(x, np.ndarray) for x in recorded.values()):
                return held if _holdable(held) else None
        if any(True for _ in bodies(node)):
            return None
        arguments = [None if value is None else self._value(value) for value in node.inputs]
        if any(a is None and v is not None for a, v in zip(arguments, node.inputs, strict=True)):
            return None
        arrays = evaluate(node, arguments, self._opsets, self._ir_version)
        if arrays is not None:
            self._known.update(zip(node.outputs, arrays, strict=True))
        return arrays

    def _value(self, value: ir.Value) -> Array | None:
        if value not in self._known:
            tensor = constant_of(value)
            producer = value.producer()
            if tensor is not None:
                self._known[value] = tensor.numpy()
            elif producer is None or self.outputs(producer, main=False) is None:
                self._known[value] = None
        return self._known.get(value)


def evaluate(
    node: ir.Node, arguments: Sequence[Array | None], opsets: dict[str, int], ir_version: int
) -> list[Array | None] | None:
    """The outputs of a node whose inputs are known; ``None`` when that fails.

    Args:
        node: without bodies.
        arguments: an array for each input, ``None`` for an omitted one.
        opsets: the versions of the domains.
        ir_version: of the model that the node is from.
    """
    graph = onnx.GraphProto(name="node", node=[ir.serde.serialize_node(node)])
    feeds = {}
    for value, array in zip(node.inputs, arguments, strict=True):
        if value is None or array is None:
            continue
        name = str(value.name)
        feeds[name] = array
        dtype = ir.DataType.from_numpy(array.dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, int(dtype), array.shape))
    graph.output.extend(onnx.ValueInfoProto(name=v.name) for v in node.outputs if v.name)
    imports = [onnx.OperatorSetIdProto(domain=d, version=v) for d, v in opsets.items()]
    model = onnx.ModelProto(ir_version=max(ir_version, 4), graph=graph, opset_import=imports)
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception:
        # Implementations raise whatever they happen to raise; any of it means "not this node".
        return None
    made = iter(results)
    outputs = [next(made) if value.name else None for value in node.outputs]
    if not all(x is None or isinstance(x, np.ndarray | np.generic) for x in outputs):
        return None
    arrays = [None if x is None else np.asarray(x) for x in outputs]
    return arrays if _holdable(arrays) else None


def _holdable(arrays: Sequence[Array | None]) -> bool:
    return all(x is None or (x.size <= LIMIT and x.dtype.kind not in "OSUT") for x in arrays)
