"""Turn what never changes into initializers.

Exporters leave chains of ``Constant``, ``Shape``, ``Gather`` and ``Cast`` nodes that compute one
small vector. Three ways out, coarse to fine: onnxscript's folder over the whole model as one edit,
because it also sees through static shapes; foldable nodes one group after the other, evaluated
here; ``Constant`` nodes lifted to initializers. Folding may fold the bug away, and then the oracle
says no: groups are taken from the front, so that what is folded is a prefix of the computation.

Last, a graph input that is only ever a second operand becomes an initializer, as an expert would
write it. An operator whose operands are *all* constant would be folded by the runtime at load and
the bug with it, so every reader must keep an operand that varies.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as ir_passes

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, Proposals, key, keyed
from onnxreduce.graph import draws
from onnxreduce.passes._draft import (
    Draft,
    Spot,
    bodies,
    constant_of,
    downstream,
    listing,
    nodes_at,
    places,
    reads,
)
from onnxreduce.passes._evaluate import LIMIT, Evaluator
from onnxreduce.passes._groups import follow, groups

NAME = "constants"
RECORDS = True


def edits(case: Case) -> Proposals:
    case = (yield FoldAll()) or case
    case = yield from follow(case, groups(list(_foldable(case)), Fold))
    case = yield from follow(case, groups(list(_liftable(case.model)), Lift))
    listed = [str(v.name) for v in case.model.graph.inputs if v.is_initializer()]
    case = yield from follow(case, groups(listed, Unlist))
    yield from groups(_freezable(case), Freeze)


@dataclass(frozen=True)
class FoldAll:
    """Fold the whole model with onnxscript's folder, without its limits on sizes."""

    def describe(self) -> str:
        return "fold constants"

    def apply(self, case: Case) -> Case:
        from onnxscript.optimizer import FOLDED_FROM_KEY
        from onnxscript.optimizer._constant_folding import FoldConstantsPass

        # It warns about every node that it leaves alone.
        logging.getLogger("onnxscript.optimizer").setLevel(logging.ERROR)
        draft = Draft(case)
        model = draft.model
        if any(value.is_initializer() for value in model.graph.inputs):
            # Initializers that are inputs too could be fed, so the folder leaves them alone.
            unlist(draft, [str(v.name) for v in model.graph.inputs if v.is_initializer()])
        declared = {v.name: (v.type, v.shape) for v in _values(model)}
        folder = FoldConstantsPass(
            shape_inference=True,
            input_size_limit=LIMIT,
            output_size_limit=LIMIT,
            should_fold=_deterministic,
        )
        try:
            if not folder(model).modified:
                raise Conflict("nothing folds")
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise Conflict(f"the folder gave up: {error}") from error
        for value in _values(model):
            # What the folder inferred on its way was not declared, and may be wrong.
            value.metadata_props.pop(FOLDED_FROM_KEY, None)
            if not value.is_initializer():
                value.const_value = None
            if value.name in declared:
                value.type, value.shape = declared[value.name]
            elif not value.is_initializer():
                value.type, value.shape = None, None
        ir_passes.OutputFixPass()(model)
        return draft.finish(same_values=True)


@dataclass(frozen=True)
class Fold:
    """Replace nodes whose inputs are constant by what they compute."""

    spots: tuple[Spot, ...]

    def describe(self) -> str:
        return f"fold {len(self.spots)} node{'s' * (len(self.spots) > 1)}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        evaluator = Evaluator(case)
        changed = False
        for (place, _), node in zip(self.spots, nodes_at(draft.model, self.spots), strict=True):
            arrays = evaluator.outputs(node, main=not place)
            graph = node.graph
            if arrays is None or not isinstance(graph, ir.Graph):
                continue
            for value, array in zip(list(node.outputs), arrays, strict=True):
                if array is not None and (value.uses() or value.is_graph_output()):
                    draft.to_initializer(value, ir.tensor(array), graph)
                    changed = True
        if not changed:
            raise Conflict("none of the nodes can be folded")
        return draft.finish(same_values=True)


@dataclass(frozen=True)
class Lift:
    """Turn ``Constant`` nodes into initializers."""

    spots: tuple[Spot, ...]

    def describe(self) -> str:
        return f"lift {len(self.spots)} Constant node{'s' * (len(self.spots) > 1)}"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        for node in nodes_at(draft.model, self.spots):
            tensor = constant_of(node.outputs[0])
            if tensor is None or not isinstance(node.graph, ir.Graph):
                raise Conflict(f"{key(node)} holds no dense tensor")
            # A tensor knows its name, so one of its own is needed; the numbers are shared.
            draft.to_initializer(
                node.outputs[0], ir.tensor(tensor.numpy(), dtype=tensor.dtype), node.graph
            )
        return draft.finish(same_values=True)


@dataclass(frozen=True)
class Unlist:
    """Turn initializers that are graph inputs too (the rule up to IR version 3) into plain ones."""

    names: tuple[str, ...]

    def describe(self) -> str:
        return f"make {len(self.names)} default{'s' * (len(self.names) > 1)} initializers only"

    def apply(self, case: Case) -> Case:
        draft = Draft(case)
        unlist(draft, self.names)
        return draft.finish(same_values=True)


@dataclass(frozen=True)
class Freeze:
    """Turn graph inputs into initializers that hold what they were fed."""

    names: tuple[str, ...]

    def describe(self) -> str:
        return f"make {listing(self.names)} constant"

    def apply(self, case: Case) -> Case:
        if not may_freeze(case.model, self.names):
            raise Conflict("a reader would have constant operands only")
        draft = Draft(case)
        graph = draft.model.graph
        by_name = {value.name: value for value in graph.inputs}
        for name in self.names:
            fed = draft.inputs.pop(name)
            assert isinstance(fed, np.ndarray)
            tensor = ir.tensor(fed, name=name)
            value = by_name[name]
            value.const_value, value.shape = tensor, ir.Shape(fed.shape)
            if (draft.model.ir_version or 0) >= 4:
                graph.inputs.remove(value)
            graph.register_initializer(value)
        return draft.finish(same_values=True)


def unlist(draft: Draft, names: Collection[str]) -> None:
    """Take names out of the graph inputs; a value that was fed becomes the initializer."""
    graph = draft.model.graph
    chosen = [v for v in graph.inputs if v.name in names and v.is_initializer()]
    if len(chosen) != len(names) or len(chosen) == len(graph.inputs):
        raise Conflict("not all of these are graph inputs with a default beside others")
    draft.model.ir_version = max(draft.model.ir_version or 0, 4)
    for value in chosen:
        fed = draft.inputs.pop(str(value.name), None)
        if fed is not None:
            if not isinstance(fed, np.ndarray):
                raise Conflict(f"{value.name} is no tensor")
            value.const_value = ir.tensor(fed, name=value.name)
        graph.inputs.remove(value)


def may_freeze(model: ir.Model, names: Collection[str]) -> bool:
    """Does every reader of these inputs keep an operand that varies, once they are constant?"""
    rest = [v for v in model.graph.inputs if v.name not in names and not v.is_initializer()]
    if not rest:
        return False
    sources = rest + [
        value
        for _, graph in places(model)
        for node in graph
        if draws(node)
        for value in node.outputs
    ]
    varying = downstream(model, sources)
    for _, graph in places(model):
        # What a body is given by its Loop or Scan varies from one iteration to the next.
        varying |= set(graph.inputs) - set(model.graph.inputs)
    for value in model.graph.inputs:
        if value.name not in names:
            continue
        if value.is_initializer() or value.is_graph_output() or not value.uses():
            return False
        for node in value.consumers():
            # A constant condition or trip count lets a runtime inline the body.
            if any(True for _ in bodies(node)) or not reads(node) & varying:
                return False
    return True


def _freezable(case: Case) -> list[str]:
    """The inputs to make constant, as many as may be together: second operands first."""
    candidates = [
        value
        for value in case.model.graph.inputs
        if isinstance(fed := case.inputs.get(str(value.name)), np.ndarray)
        and fed.dtype.kind not in "OSUT"
    ]
    candidates.reverse()
    candidates.sort(key=lambda value: any(index == 0 for _, index in value.uses()))
    chosen: list[str] = []
    for value in candidates:
        if may_freeze(case.model, [*chosen, str(value.name)]):
            chosen.append(str(value.name))
    return chosen


def _foldable(case: Case) -> Iterator[Spot]:
    fed = set(case.inputs)
    known: set[ir.Value] = set()
    functions = {function.identifier() for function in case.model.functions.values()}
    for place, graph in places(case.model):
        known |= {v for v in graph.initializers.values() if v.name not in fed or place}
        if len(place) % 2:
            continue
        for node in keyed(graph):
            if node.op_type == "Constant" and node.domain == "":
                known.update(node.outputs)
            elif (
                _deterministic(node)
                and node.op_identifier() not in functions
                and reads(node) <= known
            ):
                known.update(node.outputs)
                yield place, key(node)


def _liftable(model: ir.Model) -> Iterator[Spot]:
    for place, graph in places(model):
        if len(place) % 2 or (place and (model.ir_version or 0) < 4):
            continue
        for node in keyed(graph):
            if (
                node.op_type == "Constant"
                and node.domain == ""
                and "sparse_value" not in node.attributes
                and not (place and node.outputs[0].is_graph_output())
            ):
                yield place, key(node)


def _deterministic(node: ir.Node) -> bool:
    return not draws(node)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for _, graph in places(model):
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs
