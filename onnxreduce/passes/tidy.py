"""Leave nothing in the model that a reader would wonder about.

Metadata, doc strings, the exporter's name, declared types of intermediate values, opset imports
and functions that nothing uses; sizes in place of declared dims that are open; then names as an
expert writes them: ``x`` for inputs, ``w`` and ``b`` for weights and biases, ``y`` for outputs,
nodes by what they do. All of it in three edits, because a bug that depends on a name, or on a
declared type, is rare: only then in smaller steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as ir_passes

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Proposals
from onnxreduce.passes._draft import graph_at, infer_outputs, listing, node_in, places
from onnxreduce.passes._groups import follow, groups
from onnxreduce.passes._names import Renaming, renamings
from onnxreduce.shapes import is_size

NAME = "tidy"
RECORDS = True

Sizes = tuple[str, tuple[int, ...]]
"""The name of a value, with the size of each axis."""

PLAIN_IR_VERSION = 8
"""What opset 17 came with, and every runtime of the last years reads."""


def edits(case: Case) -> Proposals:
    untidy = [kind for kind, clean in _KINDS.items() if clean(case.copy_model())]
    case = yield from follow(case, groups(untidy, Clean))
    case = yield from follow(case, _declarations(case))
    yield from groups(renamings(case.model), Rename)


def _declarations(case: Case) -> Proposals:
    """Static shapes for all that is declared, else for the outputs alone: a bug that lives in
    dynamic shapes is more often one of the inputs'."""
    graph = case.model.graph
    inputs = tuple(_static(case, value) for value in graph.inputs)
    outputs = tuple(_static(case, value) for value in graph.outputs)
    entries = [tuple(e for e in part if e is not None) for part in (inputs + outputs, outputs)]
    for part in dict.fromkeys(entry for entry in entries if entry):
        if (yield Declare(part)) is not None:
            return


def _static(case: Case, value: ir.Value) -> Sizes | None:
    """The sizes that a value has, where its declaration leaves some open and they are known."""
    if not isinstance(value.type, ir.TensorType) or _is_static(value.shape):
        return None
    name = value.name or ""
    known: ir.Shape | tuple[int, ...] | None = None
    fed = case.inputs.get(name)
    recording = case.recording
    if value.is_graph_input():
        known = fed.shape if isinstance(fed, np.ndarray) else None
    elif recording is not None and not recording.made_up:
        found = recording.get(name)
        known = found.shape if isinstance(found, np.ndarray) else None
    else:  # no backend runs it, but inference may tell
        known = infer_outputs(_undeclared(case, name)).get(name)
    sizes = tuple(dim for dim in known or () if is_size(dim))
    return None if known is None or len(sizes) < len(known) else (name, sizes)


def _undeclared(case: Case, name: str) -> ir.Model:
    """The model without a declared shape of an output, which inference would repeat."""
    model = case.copy_model()
    for value in model.graph.outputs:
        if value.name == name:
            value.shape = None
    return model


def _is_static(shape: ir.Shape | None) -> bool:
    return shape is not None and shape.is_static()


@dataclass(frozen=True)
class Clean:
    """Take away some kinds of clutter."""

    kinds: tuple[str, ...]

    def describe(self) -> str:
        return f"clean {', '.join(self.kinds)}"

    def apply(self, case: Case) -> Case:
        model = case.copy_model()
        changed = [_KINDS[kind](model) for kind in self.kinds]
        if not any(changed):
            raise Conflict("nothing to clean")
        return case.same_values(model, case.inputs)


@dataclass(frozen=True)
class Declare:
    """Declare the sizes of graph inputs and outputs where dims are open."""

    shapes: tuple[Sizes, ...]

    def describe(self) -> str:
        return f"declare the shapes of {listing([name for name, _ in self.shapes])}"

    def apply(self, case: Case) -> Case:
        model = case.copy_model()
        wanted, changed = dict(self.shapes), False
        for value in (*model.graph.inputs, *model.graph.outputs):
            dims = wanted.get(value.name or "")
            if dims is None:
                continue
            if value.shape is not None and len(value.shape) != len(dims):
                raise Conflict(f"{value.name} is declared with another rank")
            old = dims if value.shape is None else value.shape
            # What is declared as a number stays, and be it wrong.
            new = [o if isinstance(o, int) else size for o, size in zip(old, dims, strict=True)]
            changed |= value.shape is None or list(value.shape) != new
            value.shape = ir.Shape(new)
        if not changed:
            raise Conflict("these shapes are declared")
        return case.same_values(model, case.inputs)


@dataclass(frozen=True)
class Rename:
    """Give values, nodes and graphs other names, all at the same time."""

    renamings: tuple[Renaming, ...]

    def describe(self) -> str:
        if len(self.renamings) == 1:
            only = self.renamings[0]
            return f"rename {only.what} {listing([only.old])} to {only.new}"
        return f"rename {len(self.renamings)} values, nodes and graphs"

    def apply(self, case: Case) -> Case:
        model = case.copy_model()
        # Found first and renamed afterwards: a new name may be the old one of something else.
        graphs = [(graph_at(model, r.place), r) for r in self.renamings]
        values = [(_value_in(graph, r.old), r.new) for graph, r in graphs if r.what == "value"]
        nodes = [(node_in(graph, r.old), r.new) for graph, r in graphs if r.what == "node"]
        inputs = {value: str(value.name) for value in model.graph.inputs}
        try:
            ir.convenience.rename_values([v for v, _ in values], [new for _, new in values])
        except ValueError as error:
            raise Conflict(str(error)) from error
        _check_unique(model)
        for node, new in nodes:
            node.name = new
        for graph, renaming in graphs:
            if renaming.what == "graph":
                graph.name = renaming.new
        fed = {
            str(value.name): case.inputs[old] for value, old in inputs.items() if old in case.inputs
        }
        return Case(model, fed)


def _value_in(graph: ir.Graph, name: str) -> ir.Value:
    for value in (*graph.inputs, *graph.initializers.values()):
        if value.name == name:
            return value
    for node in graph:
        for value in node.outputs:
            if value.name == name:
                return value
    raise Conflict(f"no value {name}")


def _check_unique(model: ir.Model) -> None:
    """Raise Conflict when a graph makes a name twice, or a body hides an outer one."""
    names: dict[tuple[str, ...], set[str]] = {}
    for place, graph in places(model):
        outer: set[str] = set()
        for start in range(len(place) % 2, len(place), 2):
            outer |= names.get(place[:start], set())
        own = [v.name for v in {*graph.inputs, *graph.initializers.values()}]
        own += [v.name for node in graph for v in node.outputs if v.name]
        if len(own) != len(set(own)) or outer & set(own):
            raise Conflict("a name is taken")
        names[place] = {str(name) for name in own}


def _clean_metadata(model: ir.Model) -> bool:
    changed = False
    holders: list[ir.Model | ir.Function | ir.Graph | ir.Node | ir.Value] = [model]
    holders += model.functions.values()
    for _, graph in places(model):
        holders += [graph, *graph.inputs, *graph.initializers.values(), *graph]
        holders += [value for node in graph for value in node.outputs]
    for holder in holders:
        changed |= bool(holder.metadata_props or holder.doc_string)
        holder.metadata_props.clear()
        if holder.doc_string:
            holder.doc_string = None
    return changed


def _clean_producer(model: ir.Model) -> bool:
    before = (model.producer_name, model.producer_version, model.domain, model.model_version)
    model.producer_name = model.producer_version = model.domain = model.model_version = None
    return any(before)


def _clean_value_info(model: ir.Model) -> bool:
    changed = False
    for place, graph in places(model):
        function = len(place) == 1
        for value in (v for node in graph for v in node.outputs):
            if value.is_graph_output() and not function:
                continue
            changed |= value.type is not None or value.shape is not None
            value.type = value.shape = None
    return changed


def _clean_opsets(model: ir.Model) -> bool:
    return bool(ir_passes.RemoveUnusedOpsetsPass()(model).modified)


def _clean_functions(model: ir.Model) -> bool:
    remove = ir_passes.RemoveUnusedFunctionsPass()  # type: ignore[no-untyped-call]
    return bool(remove(model).modified)


def _clean_ir_version(model: ir.Model) -> bool:
    imports = [
        onnx.helper.make_opsetid(domain, version)
        for domain, version in model.graph.opset_imports.items()
        if domain in ("", "ai.onnx.ml")
    ]
    least = onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)
    plain = max(PLAIN_IR_VERSION, least)
    changed = model.ir_version != plain
    model.ir_version = plain
    return changed


_KINDS: dict[str, Callable[[ir.Model], bool]] = {
    "metadata": _clean_metadata,
    "producer": _clean_producer,
    "value types": _clean_value_info,
    "functions": _clean_functions,
    "opset imports": _clean_opsets,
    "IR version": _clean_ir_version,
}
