"""Types and shapes of values, as far as ONNX shape inference and the model itself tell them."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping
from typing import NamedTuple, TypeGuard

import onnx
import onnx.checker
import onnx.shape_inference
import onnx_ir as ir
from onnx_ir import serde

from onnxreduce.encoding import encode

FAILURES = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
)
"""What shape inference raises for models that it cannot take (recursive functions, say)."""


class ValueType(NamedTuple):
    """What is known of a value before it is computed."""

    type: ir.TypeProtocol
    shape: ir.Shape | None


def inferred(model: ir.Model) -> Mapping[str, ValueType]:
    """Type and symbolic shape of the values of the main graph; worked out once a model.

    Where inference fails (an invalid model) this is what the model declares.
    """
    known = _inferred.get(model)
    if known is None:
        known = _inferred[model] = {**_declared(model), **_infer(model)}
    return known


def is_size(dim: int | ir.SymbolicDim | None) -> TypeGuard[int]:
    """Whether a declared dim says a size. Some exporters write -1 where they know none."""
    return isinstance(dim, int) and dim >= 0


def symbol(dim: int | ir.SymbolicDim) -> str:
    """The name of a dim; empty when it has none."""
    return "" if isinstance(dim, int) else dim.value or ""


def agrees(shape: ir.Shape | None, sizes: tuple[int, ...], bindings: Mapping[str, int]) -> bool:
    """Whether a symbolic shape fits recorded sizes, with dims of one name equal in size."""
    if shape is None or len(shape) != len(sizes):
        return False
    bound = dict(bindings)
    for dim, size in zip(shape, sizes, strict=True):
        known = dim if isinstance(dim, int) else bound.setdefault(dim.value or "", size)
        if known != size and (isinstance(dim, int) or dim.value):
            return False
    return True


def bind(shape: ir.Shape | None, sizes: tuple[int, ...], bindings: dict[str, int]) -> None:
    """Note the sizes of the named dims of a shape; the first size of a name stays."""
    if shape is not None and len(shape) == len(sizes):
        for dim, size in zip(shape, sizes, strict=True):
            if isinstance(dim, ir.SymbolicDim) and dim.value:
                bindings.setdefault(dim.value, size)


def _declared(model: ir.Model) -> dict[str, ValueType]:
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values()]
    values.extend(value for node in graph for value in node.outputs)
    found = {}
    for value in values:
        if value.name and value.type is not None:
            found[value.name] = ValueType(value.type, value.shape)
        elif value.name and value.const_value is not None:
            tensor = value.const_value
            found[value.name] = ValueType(
                ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
            )
    return found


def _infer(model: ir.Model) -> dict[str, ValueType]:
    content = encode(model).content
    outcome = None
    for data_propagation in (True, False):
        with contextlib.suppress(*FAILURES):
            outcome = onnx.shape_inference.infer_shapes(content, data_prop=data_propagation)
            break
    found: dict[str, ValueType] = {}
    for info in outcome.graph.value_info if outcome else ():
        kind = serde.deserialize_type_proto_for_type(info.type)
        if kind is not None:
            found[info.name] = ValueType(kind, _told(info.type))
    return found


def _told(proto: onnx.TypeProto) -> ir.Shape | None:
    """An inferred shape; dims to which inference itself gave a name are just unknown."""
    shape = serde.deserialize_type_proto_for_shape(proto)
    if shape is None:
        return None
    return ir.Shape([None if _is_made_up(dim) else dim for dim in shape])


def _is_made_up(dim: int | ir.SymbolicDim) -> bool:
    return isinstance(dim, ir.SymbolicDim) and (dim.value or "").startswith("unk__")


_inferred: weakref.WeakKeyDictionary[ir.Model, Mapping[str, ValueType]] = (
    weakref.WeakKeyDictionary()
)
