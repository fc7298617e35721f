"""Where a reduction starts: the original model with inputs that it runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from onnxreduce.case import Case, InputValue
from onnxreduce.inputs import bind_dims, check_inputs, find_inputs, make_inputs
from onnxreduce.modelio import load_model
from onnxreduce.modelread import SORTED, model_of
from onnxreduce.options import Options

SIZES = (16, 32, 64, 128, 224)
"""Sizes of symbolic dims to try when the model does not run with the first ones."""

ModelLike = Case | str | Path | onnx.ModelProto | ir.Model


@dataclass(frozen=True)
class Start:
    """The original.

    Attributes:
        case: it.
        origin: where its inputs come from, for a person.
        made_up: the inputs were made from the signature.
    """

    case: Case
    origin: str
    made_up: bool


def first_case(
    model: ModelLike, inputs: Mapping[str, InputValue] | None, options: Options
) -> Start:
    """Reads the model and finds, checks or makes its inputs.

    Raises:
        UsageError: one of them cannot be used.
    """
    if isinstance(model, Case):
        check_inputs(model.model, model.inputs)
        return Start(model, "given with the case", made_up=False)
    path = Path(model) if isinstance(model, (str, Path)) else None
    loaded = load_model(path) if path else _in_memory(model)
    if inputs is not None:
        check_inputs(loaded, inputs)
        return Start(Case(loaded, inputs), "given", made_up=False)
    if path is None and options.inputs is None:
        made = make_inputs(loaded, options.seed, options.dims)
        return Start(Case(loaded, made), f"made up, seed {options.seed}", made_up=True)
    nowhere = Path("model.onnx")
    found, origin = find_inputs(path or nowhere, loaded, options.inputs, options.seed, options.dims)
    made_up = origin.startswith("made")
    if loaded.graph.meta.get(SORTED):
        origin += "; the model's nodes were sorted when it was read"
    return Start(Case(loaded, found), origin, made_up)


def other_sizes(start: Start, options: Options) -> Iterator[Start]:
    """The same model with made-up inputs of other sizes, where the user left them open."""
    model = start.case.model
    bound = bind_dims(model, options.dims)
    free = [name for name, size in bound.items() if name not in options.dims and size > 1]
    for size in SIZES if free else ():
        dims = {**bound, **dict.fromkeys(free, size)}
        made = make_inputs(model, options.seed, dims)
        listed = ", ".join(f"{name}={value}" for name, value in dims.items())
        origin = f"made from the signature, seed {options.seed}, {listed}"
        yield replace(start, case=Case(model, made), origin=origin)


def _in_memory(model: ModelLike) -> ir.Model:
    if isinstance(model, ir.Model):
        return model
    assert isinstance(model, onnx.ModelProto)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return model_of(copy, Path("the model in memory"))


def control(case: Case) -> Case | None:
    """A case with the same inputs that cannot show a bug: it passes the first tensor through.

    None when no input is a tensor, or that is what the case itself does.
    """
    found = (
        v for v in case.model.graph.inputs if isinstance(case.inputs.get(v.name or ""), np.ndarray)
    )
    first = next(found, None)
    if first is None or first.type is None or case.size.nodes <= 1:
        return None
    name = str(first.name)
    value = ir.Value(name=name, type=first.type, shape=first.shape)
    node = ir.node("Identity", [value])
    output = node.outputs[0]
    output.name, output.type, output.shape = f"{name}_same", first.type, first.shape
    graph = ir.Graph([value], [output], nodes=[node], opset_imports={"": 17}, name="control")
    return Case(ir.Model(graph, ir_version=8), {name: case.inputs[name]})
