"""What it means that reading and writing a model loses nothing: equality of normal forms."""

from __future__ import annotations

import numpy as np
import onnx
from onnx_ir import serde


def normal(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with everything that has no meaning made uniform: how numbers are encoded, the order
    of value_info, names that nobody can refer to."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for graph in (copy.graph, *copy.functions):
        _normalise_graph(graph)
    for opset in copy.opset_import:
        if opset.domain == "ai.onnx":
            opset.domain = ""
    _drop_empty(copy)
    _sort(copy.metadata_props, "key")
    return copy


def _normalise_graph(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    for node in graph.node:
        if node.domain == "ai.onnx":
            node.domain = ""
        while node.output and not node.output[-1]:
            node.output.pop()
        _drop_empty(node)
        _sort(node.metadata_props, "key")
        for attribute in node.attribute:
            _drop_empty(attribute)
            if attribute.HasField("t"):
                _normalise_tensor(attribute.t)
            for tensor in attribute.tensors:
                _normalise_tensor(tensor)
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _normalise_graph(inner)
    infos = {info.name: info for info in graph.value_info}
    outputs = set()
    if isinstance(graph, onnx.GraphProto):
        outputs = {value.name for value in (*graph.input, *graph.output)}
        for tensor in graph.initializer:
            _normalise_tensor(tensor)
            infos.pop(tensor.name, None)
        for value in (*graph.input, *graph.output):
            _drop_empty(value)
        _drop_empty(graph)
        _sort(graph.quantization_annotation, "tensor_name")
    known = {name for node in graph.node for name in node.output} - outputs
    kept = [infos[name] for name in sorted(infos) if name in known or "/" in name]
    del graph.value_info[:]
    graph.value_info.extend(kept)


def _normalise_tensor(tensor: onnx.TensorProto) -> None:
    _drop_empty(tensor)
    if tensor.data_type == onnx.TensorProto.STRING:
        return
    raw = serde.deserialize_tensor(tensor).tobytes()
    for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        tensor.ClearField(field)
    tensor.raw_data = raw


def _drop_empty(message: object) -> None:
    for field in (
        "name",
        "domain",
        "doc_string",
        "overload",
        "producer_name",
        "producer_version",
        "model_version",
    ):
        if hasattr(message, field) and not getattr(message, field):
            message.ClearField(field)  # type: ignore[attr-defined]


def _sort(repeated: object, key: str) -> None:
    items = sorted(repeated, key=lambda item: getattr(item, key))  # type: ignore[call-overload]
    del repeated[:]  # type: ignore[attr-defined]
    repeated.extend(items)  # type: ignore[attr-defined]


def equal(left: object, right: object) -> bool:
    """Equality of inputs: arrays by dtype and content (NaN equals NaN), lists by element."""
    if isinstance(left, list) or isinstance(right, list):
        return (
            isinstance(left, list)
            and isinstance(right, list)
            and len(left) == len(right)
            and all(map(equal, left, right))
        )
    if left is None or right is None:
        return left is right
    assert isinstance(left, np.ndarray)
    assert isinstance(right, np.ndarray)
    same = left.dtype == right.dtype and left.shape == right.shape
    if left.dtype.kind == "O":
        return same and left.tolist() == right.tolist()
    return same and left.tobytes() == right.tobytes()
