"""Numbers that a person would have written: zeros, ones, small integers, few digits.

Everything at once first, the simplest contents first: many bugs do not look at values at all, and
then two calls are enough. What refuses is taken tensor by tensor, then by groups of elements. Only
what makes a tensor simpler is proposed (see `onnxreduce.complexity`), so special values are kept
exactly when the bug needs them.

A tensor of ones is left alone: nothing is shorter to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case, InputValue
from onnxreduce.complexity import array_complexity, element_complexity
from onnxreduce.edits import Conflict, Edit, Proposals, key, keyed
from onnxreduce.passes._draft import Place, graph_at, listing, node_in, places
from onnxreduce.passes._groups import Following, follow, groups, least, limited
from onnxreduce.passes._recipes import cook, is_float, recipes
from onnxreduce.tensors import Array

NAME = "values"

EFFORT = 16
"""Refusals by one tensor after which its elements are left for the next round."""

SHORT = 16
"""Integer tensors of up to this many elements may be sizes or axes: each element is minimised. So
are the elements of larger ones when so few are left that are not zero."""

ELEMENTS = 64
"""More groups than this of one tensor's elements are not told apart."""


class Target(NamedTuple):
    """A tensor: an ``input`` or ``initializer`` by name, or the ``constant`` of a node by key."""

    place: Place
    kind: str
    name: str


def edits(case: Case) -> Proposals:
    case = yield from follow(case, _sequences(case))
    for chosen in (_floats, _integers):
        case = yield from _everything(case, chosen)
        for recipe in _all_recipes(case, chosen(case)):
            usable = [target for target in chosen(case) if _simplifies(case, recipe, target)]
            case = yield from follow(case, groups(usable, _cooking(recipe)))
    for target in list(targets(case)):
        case = yield from _elements(case, target)


@dataclass(frozen=True)
class Fill:
    """Give tensors the contents that a recipe makes of what they hold."""

    recipe: str
    targets: tuple[Target, ...]

    def describe(self) -> str:
        return f"{self.recipe} in {listing([target.name for target in self.targets])}"

    def apply(self, case: Case) -> Case:
        return _rewrite(case, {t: lambda a: cook(self.recipe, a) for t in self.targets})


@dataclass(frozen=True)
class FillElements:
    """Give some elements (by flat index) of a tensor what a recipe makes of them."""

    recipe: str
    target: Target
    indices: tuple[int, ...]

    def describe(self) -> str:
        return f"{self.recipe} in {len(self.indices)} elements of {self.target.name}"

    def apply(self, case: Case) -> Case:
        return _rewrite(case, {self.target: self._fill})

    def _fill(self, array: Array) -> Array:
        if self.indices[-1] >= array.size:
            raise Conflict(f"{self.target.name} has no such elements")
        flat = array.reshape(-1).copy()
        chosen = np.array(self.indices)
        flat[chosen] = cook(self.recipe, flat[chosen])
        return flat.reshape(array.shape)


@dataclass(frozen=True)
class SetElement:
    """Set one element (by flat index) of an integer tensor."""

    target: Target
    index: int
    number: int

    def describe(self) -> str:
        return f"set {self.target.name}[{self.index}] to {self.number}"

    def apply(self, case: Case) -> Case:
        return _rewrite(case, {self.target: self._set})

    def _set(self, array: Array) -> Array:
        if self.index >= array.size:
            raise Conflict(f"{self.target.name} has no such element")
        flat = array.reshape(-1).copy()
        flat[self.index] = self.number
        return flat.reshape(array.shape)


@dataclass(frozen=True)
class DropItems:
    """Shorten a sequence that is fed."""

    name: str
    indices: tuple[int, ...]

    def describe(self) -> str:
        return f"drop {len(self.indices)} items of {self.name}"

    def apply(self, case: Case) -> Case:
        items = case.inputs.get(self.name)
        if not isinstance(items, list) or max(self.indices) >= len(items):
            raise Conflict(f"{self.name} is no sequence with these items")
        left = [item for index, item in enumerate(items) if index not in self.indices]
        return Case(case.model, {**case.inputs, self.name: left})


# --- finding and rewriting ----------------------------------------------------------------------


def targets(case: Case) -> Iterator[Target]:
    """Every tensor whose numbers may change, in a fixed order."""
    for name, fed in case.inputs.items():
        if fed is not None:
            yield Target((), "input", name)
    for place, graph in places(case.model):
        for name, value in graph.initializers.items():
            if value.const_value is not None and not (not place and name in case.inputs):
                yield Target(place, "initializer", name)
        for node in keyed(graph):
            attribute = node.attributes.get("value")
            if attribute is not None and attribute.type == ir.AttributeType.TENSOR:
                yield Target(place, "constant", key(node))


def arrays(case: Case, target: Target) -> list[Array]:
    """What a target holds now: one array, several for a sequence, none when it is gone."""
    if target.kind == "input":
        fed = case.inputs.get(target.name)
        return fed if isinstance(fed, list) else [] if fed is None else [fed]
    try:
        tensor = _tensor(graph_at(case.model, target.place), target)
    except Conflict:
        return []
    return [tensor.numpy()]


def _tensor(graph: ir.Graph, target: Target) -> ir.TensorProtocol:
    if target.kind == "initializer":
        value = graph.initializers.get(target.name)
        if value is None or value.const_value is None:
            raise Conflict(f"no initializer {target.name}")
        return value.const_value
    attribute = node_in(graph, target.name).attributes.get("value")
    if attribute is None or attribute.type != ir.AttributeType.TENSOR:
        raise Conflict(f"{target.name} holds no tensor")
    return attribute.as_tensor()


def _rewrite(case: Case, changes: dict[Target, Callable[[Array], Array]]) -> Case:
    model = case.model
    if any(target.kind != "input" for target in changes):
        model = case.copy_model()
    inputs: dict[str, InputValue] = dict(case.inputs)
    changed = False
    for target, change in changes.items():
        old = arrays(case, target)
        if not old:
            raise Conflict(f"{target.name} is gone")
        new = [change(array) for array in old]
        if all(_same(a, b) for a, b in zip(old, new, strict=True)):
            continue
        changed = True
        if target.kind == "input":
            inputs[target.name] = new if isinstance(inputs[target.name], list) else new[0]
            continue
        graph = graph_at(model, target.place)
        tensor = ir.tensor(new[0], dtype=_tensor(graph, target).dtype)
        if target.kind == "initializer":
            tensor.name = target.name
            graph.initializers[target.name].const_value = tensor
        else:
            node = node_in(graph, target.name)
            node.attributes["value"] = ir.AttrTensor("value", tensor)
    if not changed:
        raise Conflict("the numbers are what they would become")
    return Case(model, inputs)


def _same(old: Array, new: Array) -> bool:
    return old is new or old.tobytes() == new.tobytes()


# --- whole tensors ------------------------------------------------------------------------------


def _floats(case: Case) -> list[Target]:
    return [t for t in targets(case) if (held := arrays(case, t)) and is_float(held[0])]


def _integers(case: Case) -> list[Target]:
    return [t for t in targets(case) if (held := arrays(case, t)) and not is_float(held[0])]


def _all_recipes(case: Case, chosen: Iterable[Target]) -> list[str]:
    names = [name for target in chosen for a in arrays(case, target)[:1] for name in recipes(a)]
    return list(dict.fromkeys(names))


def _cooking(recipe: str) -> Callable[[tuple[Target, ...]], Edit]:
    return lambda chosen: Fill(recipe, chosen)


def _everything(case: Case, choose: Callable[[Case], list[Target]]) -> Following:
    """The simplest recipe that all tensors of a kind take together, if there are several."""
    chosen = choose(case)
    if len(chosen) < 2:
        return case
    for recipe in _all_recipes(case, chosen):
        usable = tuple(target for target in chosen if _simplifies(case, recipe, target))
        if len(usable) > 1:
            answer = yield Fill(recipe, usable)
            if answer is not None:
                return answer
    return case


def _simplifies(case: Case, recipe: str, target: Target) -> bool:
    """Does a recipe make a target simpler, and not just what a simpler recipe was refused for?"""
    for array in arrays(case, target):
        if recipe not in recipes(array):
            return False
        made = cook(recipe, array)
        if array_complexity(made) >= array_complexity(array):
            return False
        if recipe != "zeros" and not made.astype(bool).any() and array.size:
            return False
    return True


# --- sequences and single elements --------------------------------------------------------------


def _sequences(case: Case) -> Proposals:
    for name, fed in case.inputs.items():
        if isinstance(fed, list) and fed:
            yield from _shorter(name, len(fed))


def _shorter(name: str, length: int) -> Proposals:
    """Drop chunks from the back; the indices that are left are always 0, 1, 2, ..."""
    size = length
    while size:
        stop = length
        while stop > 0:
            start = max(0, stop - size)
            if (yield DropItems(name, tuple(range(start, stop)))) is not None:
                length -= stop - start
            stop = start
        size //= 2


def _elements(case: Case, target: Target) -> Following:
    held = arrays(case, target)
    if len(held) != 1 or held[0].dtype.kind in "OSUT":
        return case
    whole = held[0].dtype.kind in "iu"
    if whole and held[0].size <= SHORT:
        return (yield from _least_elements(case, target))
    for recipe in ("zeros", "ones", "integers", "one digit", "two digits"):
        flat = arrays(case, target)[0].reshape(-1)
        if (flat == 1).all() or recipe not in recipes(flat):
            continue
        runs = _bundles(_worth(flat, recipe))
        search = groups(runs, _filling(recipe, target))
        case = yield from follow(case, limited(search, EFFORT))
    if whole and np.count_nonzero(arrays(case, target)[0]) <= SHORT:
        case = yield from _least_elements(case, target)
    return case


def _worth(flat: Array, recipe: str) -> list[int]:
    """The flat indices of the elements that a recipe makes simpler."""
    made = cook(recipe, flat)
    simpler: list[int] = np.flatnonzero(
        element_complexity(made) < element_complexity(flat)
    ).tolist()
    return simpler


def _bundles(indices: Sequence[int]) -> list[tuple[int, ...]]:
    """At most `ELEMENTS` runs of indices."""
    count = min(len(indices), ELEMENTS)
    cuts = [len(indices) * k // count for k in range(count + 1)] if count else []
    return [tuple(indices[a:b]) for a, b in pairwise(cuts)]


def _filling(recipe: str, target: Target) -> Callable[[tuple[tuple[int, ...], ...]], Edit]:
    return lambda runs: FillElements(recipe, target, tuple(i for run in runs for i in run))


def _least_elements(case: Case, target: Target) -> Following:
    """Integers that may be sizes, axes or thresholds: each as small as it can be."""
    flat = arrays(case, target)[0].reshape(-1)
    if not flat.any():
        return case
    for index, number in enumerate(flat.tolist()):
        if number != 0:
            make = partial(SetElement, target, index)
            case = yield from least(case, number, make)
    return case
