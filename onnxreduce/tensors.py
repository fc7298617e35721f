"""Tensors of a case: shared between candidates, never changed, known by their content."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

Array = npt.NDArray[Any]

_digests: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def array_digest(array: Array) -> str:
    """SHA-256 (hex) of dtype, shape and content. Strings are hashed by their UTF-8 form."""
    hasher = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    if array.dtype.kind in "OSUT":
        for item in array.ravel().tolist():
            raw = item if isinstance(item, bytes) else str(item).encode()
            hasher.update(len(raw).to_bytes(8, "little") + raw)
    else:
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()


def tensor_digest(tensor: ir.TensorProtocol) -> str:
    """SHA-256 (hex) of the type, shape and content of a tensor; computed once a tensor."""
    known = _digests.get(tensor)
    if known is None:
        if isinstance(tensor, SparseInitializer):
            known = hashlib.sha256(tensor.proto.SerializeToString(deterministic=True)).hexdigest()
        else:
            hasher = hashlib.sha256(f"{tensor.dtype}{list(tensor.shape)}".encode())
            hasher.update(array_digest(tensor.numpy()).encode())
            known = hasher.hexdigest()
        _digests[tensor] = known
    return known


def payload(tensor: ir.TensorProtocol) -> memoryview:
    """A tensor's bytes as ONNX stores them, without a copy where its array allows that."""
    raw = tensor.raw
    array = raw if type(raw) is np.ndarray and type(tensor) is ir.Tensor else tensor.numpy()
    plain = array.dtype.byteorder != ">" and array.flags.c_contiguous
    if plain and array.dtype.kind not in "OSUT" and tensor.dtype.bitwidth >= 8:
        return array.reshape(-1).view(np.uint8).data
    return memoryview(tensor.tobytes())


def nbytes(tensor: ir.TensorProtocol) -> int:
    """How many bytes of content a tensor has; strings count as UTF-8."""
    if tensor.dtype == ir.DataType.STRING:
        return sum(map(len, string_items(tensor)))
    return int(tensor.nbytes)


def string_items(tensor: ir.TensorProtocol) -> list[bytes]:
    """The elements of a string tensor, row-major, as UTF-8."""
    if isinstance(tensor, ir.StringTensor):
        return list(tensor.string_data())
    items = tensor.numpy().reshape(-1).tolist()
    return [item if isinstance(item, bytes) else str(item).encode() for item in items]


def graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph, its subgraphs, and those of the local functions, outermost first."""
    for root in (model.graph, *(function.graph for function in model.functions.values())):
        yield from nested(root)


def nested(graph: ir.Graph) -> Iterator[ir.Graph]:
    """A graph and every subgraph in it, outermost first."""
    waiting = [graph]
    while waiting:
        current = waiting.pop()
        yield current
        inner = [body for node in current for _, body in named_bodies(node)]
        waiting.extend(reversed(inner))


_WITH_BODIES = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def named_bodies(node: ir.Node) -> list[tuple[str, ir.Graph]]:
    """The subgraphs in a node's attributes, the outermost only, each with its attribute's name."""
    found: list[tuple[str, ir.Graph]] = []
    for name, attribute in node.attributes.data.items():  # the plain dict: this is asked often
        if attribute.type in _WITH_BODIES and not attribute.is_ref():
            single = attribute.type == ir.AttributeType.GRAPH
            inside = [attribute.as_graph()] if single else attribute.as_graphs()
            found += [(name, body) for body in inside]
    return found


def tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Every tensor of a model in a fixed order: initializers and tensor attributes, in graphs,
    subgraphs and functions."""
    for graph in graphs(model):
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value
        for node in graph:
            for attribute in node.attributes.values():
                yield from attribute_tensors(attribute)


def attribute_tensors(attribute: ir.Attr) -> tuple[ir.TensorProtocol, ...]:
    """The tensors that an attribute holds itself (not those of a subgraph in it)."""
    if attribute.is_ref():
        return ()
    if attribute.type in (ir.AttributeType.TENSOR, ir.AttributeType.SPARSE_TENSOR):
        return (attribute.value,)
    if attribute.type in (ir.AttributeType.TENSORS, ir.AttributeType.SPARSE_TENSORS):
        return tuple(attribute.value)
    return ()


class SparseInitializer(ir.TensorProtocol):
    """A sparse initializer (or sparse attribute) kept as it was read; onnx_ir has no place for one.

    `numpy()` gives the dense form, so every reader of initializers works unchanged.
    """

    def __init__(self, proto: onnx.SparseTensorProto) -> None:
        self.proto = proto
        self.name: str | None = proto.values.name
        self.doc_string: str | None = None
        self.shape = ir.Shape(list(proto.dims))
        self.dtype = ir.DataType(proto.values.data_type)
        self.metadata_props: dict[str, str] = {}
        self.meta: dict[str, Any] = {}

    @property
    def size(self) -> int:
        return int(np.prod(self.shape.numpy(), dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return int(self.size * self.dtype.itemsize)

    @property
    def raw(self) -> onnx.SparseTensorProto:
        return self.proto

    def numpy(self) -> Array:
        values = onnx.numpy_helper.to_array(self.proto.values)
        indices = onnx.numpy_helper.to_array(self.proto.indices)
        dense = np.zeros(self.shape.numpy(), values.dtype)
        where = indices if indices.ndim == 1 else np.ravel_multi_index(indices.T, dense.shape)
        dense.reshape(-1)[where] = values
        return dense

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.numpy(), dtype)

    def __dlpack__(self, *, stream: Any = ...) -> Any:
        return self.numpy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def tobytes(self) -> bytes:
        return self.numpy().tobytes()
