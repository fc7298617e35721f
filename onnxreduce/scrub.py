"""Scrubbing: a result that can be shown to strangers, as far as the bug survives it.

Weights and inputs are replaced by random numbers, names by plain ones, texts by random letters.
None of this makes a case smaller, so it is no pass of the schedule: it runs once at the end. What
the bug needs stays, and is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeVar

import numpy as np
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.changes import short
from onnxreduce.edits import Conflict
from onnxreduce.engine import Question
from onnxreduce.passes._draft import places
from onnxreduce.passes._names import Renaming
from onnxreduce.passes.tidy import Clean, Rename
from onnxreduce.tensors import Array, array_digest
from onnxreduce.verdict import Verdict

STAGE = "scrub"

_TEXTS = (ir.AttributeType.STRING, ir.AttributeType.STRINGS)
"""Those of ONNX's own operators are words of the specification."""

DIGITS = 9
"""A tensor of up to so many one-digit whole numbers tells nothing of where it comes from; nor does
one of any size whose elements are all the same."""

CLUTTER = ("metadata", "producer")

NEUTRAL = re.compile(r"(x|w|b|y|s|z|v|d|n|g)\d*")
"""Names that tell nothing, beside those of operators."""


@dataclass(frozen=True)
class Scrubbed:
    """What was replaced, and what the bug needs as it is; in words."""

    replaced: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True)
class Values:
    """The numbers or texts of an input or initializer."""

    name: str


@dataclass(frozen=True)
class Dim:
    """A symbolic dim."""

    name: str


T = TypeVar("T", Values, Dim, Renaming)


class Observer(Protocol):
    """Of `onnxreduce.engine.Observer`, what scrubbing needs."""

    def stage(self, name: str) -> None: ...
    def ask(self, question: Question) -> Verdict: ...
    def accepted(self, question: Question, verdict: Verdict) -> None: ...


class Scrub:
    """Scrubs a case.

    Attributes:
        case: the case so far; right also after an answer raised.
    """

    def __init__(self, case: Case, observer: Observer, seed: int = 0) -> None:
        self.case = case
        self._observer = observer
        self._seed = seed
        self._replaced: list[str] = []
        self._random: set[str] = set()
        """Digests of the arrays that are random."""

    def run(self) -> None:
        """Values, then what is written in the model, then names."""
        self._observer.stage(STAGE)
        self._in_parts([Values(name) for name in content(self.case)], self._randomised)
        self._try("remove doc strings, metadata and the producer's name", _without_clutter)
        self._in_parts(list(_renamings(self.case.model)), _renamed)
        self._in_parts([Dim(name) for name in _dims(self.case.model)], _with_dims)

    @property
    def scrubbed(self) -> Scrubbed:
        """What came of it."""
        kept = [_words(Values(name)) for name in self._telling()]
        kept += [_words(renaming) for renaming in _renamings(self.case.model)]
        kept += [_words(Dim(name)) for name in _dims(self.case.model)]
        kept += _told_elsewhere(self.case.model)
        return Scrubbed(tuple(dict.fromkeys(self._replaced)), tuple(dict.fromkeys(kept)))

    def _randomised(self, case: Case, items: Sequence[Values]) -> Case:
        return randomised(case, [item.name for item in items], self._seed)

    def _telling(self) -> list[str]:
        """Names of the values that still hold the user's numbers."""
        return [name for name in content(self.case) if _digest(self.case, name) not in self._random]

    def _in_parts(self, items: Sequence[T], change: Callable[[Case, Sequence[T]], Case]) -> None:
        """All of them at once, else each half by itself."""
        if not items:
            return
        words = [_words(item) for item in items]
        done = self._try(
            f"scrub {'; '.join(words[:3])}{' ...' if words[3:] else ''}",
            lambda case: change(case, items),
        )
        if done:
            self._replaced += words
            self._random |= {
                _digest(self.case, item.name) for item in items if isinstance(item, Values)
            }
        elif len(items) > 1:
            half = len(items) // 2
            self._in_parts(items[:half], change)
            self._in_parts(items[half:], change)

    def _try(self, words: str, change: Callable[[Case], Case]) -> bool:
        try:
            candidate = change(self.case)
        except Conflict:
            return False
        if candidate.digest == self.case.digest:
            return False
        question = Question(STAGE, words, candidate)
        verdict = self._observer.ask(question)
        if verdict:
            self.case = candidate
            self._observer.accepted(question, verdict)
        return bool(verdict)


def content(case: Case) -> list[str]:
    """Names of the inputs and initializers of the main graph whose values tell something."""
    return [name for name, array in _arrays(case) if not plain(array)]


def plain(array: Array) -> bool:
    """Does a tensor tell nothing of where it comes from?"""
    if array.size == 0:
        return True
    if array.dtype.kind in "OSUT":
        return not any(map(len, array.reshape(-1).tolist()))
    numbers = array.reshape(-1).astype(np.float64 if array.dtype.kind != "c" else np.complex128)
    if len(np.unique(numbers)) == 1:
        return bool(np.isin(np.abs(numbers[0]), (0.5, *range(10)))) or not np.isfinite(numbers[0])
    whole = (np.abs(numbers) < 10) & (numbers == np.trunc(numbers.real))
    return array.size <= DIGITS and bool(whole.all())


def randomised(case: Case, names: Sequence[str], seed: int) -> Case:
    """The case with other values in the named inputs and initializers, of the same type, shape
    and range."""
    model, inputs = case.copy_model(), dict(case.inputs)
    for name, array in _arrays(case):
        if name not in names:
            continue
        made = _random(array, np.random.default_rng([seed, len(name), array.size]))
        if name in inputs:
            inputs[name] = made
        else:
            value = model.graph.initializers[name]
            value.const_value = ir.Tensor(made, name=name)
    return Case(model, inputs)


def _arrays(case: Case) -> Iterator[tuple[str, Array]]:
    for name, value in case.inputs.items():
        if isinstance(value, np.ndarray):
            yield name, value
    for name, initializer in case.model.graph.initializers.items():
        tensor = initializer.const_value
        if tensor is not None and name not in case.inputs and tensor.dtype != ir.DataType.STRING:
            yield name, np.asarray(tensor.numpy())


def _digest(case: Case, name: str) -> str:
    return array_digest(dict(_arrays(case))[name])


def _random(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype.kind in "OSUT":
        letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
        texts = ["".join(rng.choice(letters, len(item))) for item in array.reshape(-1).tolist()]
        made = np.empty(len(texts), object)
        made[:] = texts
        return made.reshape(array.shape)
    if array.dtype.kind == "b":
        return rng.random(array.shape) < 0.5
    if array.dtype.kind in "iu":
        low, high = int(array.min()), int(array.max())
        return rng.integers(low, high, array.shape, endpoint=True).astype(array.dtype)
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    finite = wide[np.isfinite(wide)].real
    least, most = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    if least == most:
        least, most = sorted((least / 2, most * 2))
    drawn = rng.uniform(least, most, array.shape)
    made = np.vectorize(lambda number: float(f"{number:.2g}"))(drawn)
    return np.asarray(made).reshape(array.shape).astype(array.dtype)


def _without_clutter(case: Case) -> Case:
    return Clean(CLUTTER).apply(case)


def _renamings(model: ir.Model) -> list[Renaming]:
    """New names for what has one that may tell something."""
    found, taken, number = [], _names(model), 0
    for place, graph in places(model):
        operators = {node.op_type.lower() for node in graph}
        values = [*graph.inputs, *graph.initializers.values()]
        values += [value for node in graph for value in node.outputs]
        for value in dict.fromkeys(values):
            if value.name and not _neutral(value.name, operators):
                number += 1
                while f"v{number}" in taken:
                    number += 1
                found.append(Renaming(place, "value", value.name, f"v{number}"))
        for node in graph:
            first = next((value.name for value in node.outputs if value.name), None)
            if node.name and first and not _neutral(node.name, operators):
                found.append(Renaming(place, "node", first, ""))
        if graph.name and not _neutral(graph.name, operators) and len(place) % 2 == 0:
            found.append(Renaming(place, "graph", graph.name, "g"))
    return found


def _names(model: ir.Model) -> set[str | None]:
    return {
        value.name
        for _, graph in places(model)
        for value in (*graph.inputs, *graph.initializers.values(), *_made(graph))
    }


def _made(graph: ir.Graph) -> list[ir.Value]:
    return [value for node in graph for value in node.outputs]


def _neutral(name: str, operators: set[str]) -> bool:
    return bool(NEUTRAL.fullmatch(name)) or name.rstrip("0123456789") in operators


def _renamed(case: Case, items: Sequence[Renaming]) -> Case:
    return Rename(tuple(items)).apply(case)


def _dims(model: ir.Model) -> list[str]:
    """Names of symbolic dims that may tell something."""
    return [n for n in _all_dims(model) if not re.fullmatch(r"[A-Z]\d*|d\d+|unk__\d+", n)]


def _all_dims(model: ir.Model) -> list[str]:
    found = dict.fromkeys(
        dim.value
        for _, graph in places(model)
        for value in (*graph.inputs, *graph.outputs, *graph.initializers.values(), *_made(graph))
        for dim in value.shape or ()
        if isinstance(dim, ir.SymbolicDim) and dim.value
    )
    return list(found)


def _with_dims(case: Case, items: Sequence[Dim]) -> Case:
    model = case.copy_model()
    taken = set(_all_dims(model))  # two dims under one name would have to be of one size
    free = (name for name in map("d{}".format, count()) if name not in taken)
    new = {item.name: next(free) for item in items}
    for _, graph in places(model):
        for value in (*graph.inputs, *graph.outputs, *graph.initializers.values(), *_made(graph)):
            if value.shape is not None:
                value.shape = ir.Shape([_other(dim, new) for dim in value.shape])
    return case.same_values(model, case.inputs)


def _other(dim: int | ir.SymbolicDim, new: dict[str, str]) -> int | ir.SymbolicDim:
    if isinstance(dim, int) or dim.value not in new:
        return dim
    return ir.SymbolicDim(new[dim.value])


def _words(item: Values | Dim | Renaming) -> str:
    if isinstance(item, Values):
        return f"values of {short(item.name)}"
    if isinstance(item, Dim):
        return f"the dim {short(item.name)}"
    return f"the name of the {item.what} {short(item.old)}"


def _told_elsewhere(model: ir.Model) -> Iterator[str]:
    """What scrubbing does not touch: tensors and texts in attributes, functions, other domains."""
    for _, graph in places(model):
        for node in graph:
            if node.domain not in ("", "ai.onnx", "ai.onnx.ml", "com.microsoft"):
                yield f"the operator {short(f'{node.domain}::{node.op_type}')}"
            for name, attribute in node.attributes.items():
                if attribute.type in (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS):
                    yield f"the tensor in {node.op_type}.{short(name)}"
                elif node.domain and attribute.type in _TEXTS:
                    yield f"the text in {node.op_type}.{short(name)}"
    for function in model.functions.values():
        yield f"the function {short(function.name)}"
