"""Which indices are left: what a smaller case computes is what the whole one computes there.

In the strict reading that holds wherever axes unify. Where only their sizes are tied (groups that
do not line up with those behind a shuffle; in the loose reading all groups over a concatenation),
the reader of the one axis as the other may get other indices, and so may all that follow. Up to
there, and where both sides keep the same indices all the same, indices are exact in either reading.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir
import pytest
from drive import drive, record
from networks import NETWORKS, Net
from test_dims import random_plans, recorded

from onnxreduce.case import Case
from onnxreduce.dims import analyse
from onnxreduce.dims.analysis import Analysis
from onnxreduce.dims.emit import emit
from onnxreduce.dims.expr import Expr, Sym
from onnxreduce.dims.keep import Indices, keep
from onnxreduce.dims.solve import Plan
from onnxreduce.edits import Conflict
from onnxreduce.passes import dims
from onnxreduce.tensors import Array


def kept_indices(plan: Plan, chosen: Mapping[Sym, Indices]) -> dict[Sym, Indices]:
    """Of every symbol that changes: those that were chosen, else the first ones."""
    return {symbol: np.arange(size) for symbol, size in plan.changed().items()} | dict(chosen)


def exact_values(analysis: Analysis, kept: Mapping[Sym, Indices]) -> set[str]:
    """The values with no tie above them whose sides keep different indices."""

    def indices(axis: Expr) -> list[int]:
        found = keep(axis, kept)
        return list(range(axis.size)) if found is None else found.tolist()

    ties = analysis.system.same
    apart = {tie.node for tie in ties if indices(tie.left) != indices(tie.right)}
    exact = {value.name or "" for value in analysis.case.model.graph.inputs}
    exact |= set(analysis.roots)
    for node in analysis.case.model.graph:
        if node.outputs[0].name in apart:
            continue
        if all(value is None or value.name in exact for value in node.inputs):
            exact |= {value.name or "" for value in node.outputs}
    return exact


def cut(array: Array, axes: tuple[Expr, ...], kept: Mapping[Sym, Indices]) -> Array:
    """The elements of a value at the kept indices."""
    for at, axis in enumerate(axes):
        indices = keep(axis, kept)
        if indices is not None:
            array = np.take(array, indices, at)
    return array


def zeroed(analysis: Analysis, kept: Mapping[Sym, Indices]) -> Case:
    """The case at its old sizes, with zeros wherever an index is not kept."""
    model = analysis.case.copy_model()
    inputs = dict(analysis.case.inputs)
    for name, root in analysis.roots.items():
        array = root.array
        if array is None or array.dtype.kind != "f":
            continue
        mask = np.ones(array.shape, bool)
        for at, axis in enumerate(analysis.axes[name] or ()):
            indices = keep(axis, kept)
            if indices is not None:
                lost = np.setdiff1d(np.arange(array.shape[at]), indices)
                mask[(slice(None),) * at + (lost,)] = False
        changed = np.where(mask, array, np.zeros((), array.dtype))
        if root.kind == "input":
            inputs[name] = changed
        else:
            model.graph.initializers[name].const_value = ir.tensor(changed, name=name)
    return Case(model, inputs)


def some_channels(analysis: Analysis) -> Iterator[tuple[Plan, dict[Sym, Indices]]]:
    """Some indices of one class of channels at a time, and what follows."""
    rng = random.Random(5)
    for symbol, entry in analysis.classes.items():
        if entry.windowed or entry.kernel or entry.anchor[0] != "axis" or entry.anchor[1] == "x":
            continue
        for size in {1, rng.randint(1, symbol.size - 1)}:
            chosen = {symbol: np.array(sorted(rng.sample(range(symbol.size), size)), np.int64)}
            try:
                plan = analysis.plan({symbol: size})
            except Conflict:
                continue
            yield plan, chosen


@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize("name", ["shuffler", "merger", "unet", "detector"])
def test_slicing_channels_is_zeroing_them(name: str, loose: bool) -> None:
    """Every value of a sliced network whose indices are exact is what the whole one computes with
    zeros in the place of what was cut."""
    case = recorded(NETWORKS[name]())
    analysis = analyse(case, loose)
    values = {value.name for node in case.model.graph for value in node.outputs}
    done, inexact = 0, 0
    for plan, chosen in some_channels(analysis):
        kept = kept_indices(plan, chosen)
        exact = exact_values(analysis, kept) & values
        whole, small = record(zeroed(analysis, kept)), record(emit(analysis, plan, chosen))
        for value in exact:
            axes = analysis.axes[value]
            if axes is not None and whole[value].dtype.kind == "f":
                expected = cut(whole[value], axes, kept)
                np.testing.assert_allclose(small[value], expected, rtol=1e-3, atol=1e-4)
                done += 1
        inexact += len(values - exact)
    assert done >= 40
    assert bool(inexact) == (name == "merger")  # elsewhere all axes line up


MOVES = {
    "Transpose": lambda n, x: n.op("Transpose", x, perm=[2, 0, 1]),
    "Relu": lambda n, x: n.op("Relu", x),
    "Reshape": lambda n, x: n.op("Reshape", x, n.const([4, 30])),
    "Concat": lambda n, x: n.op("Concat", x, n.weight(4, 2, 5), axis=1),
    "Slice": lambda n, x: n.op("Slice", x, n.const([1]), n.const([-1]), n.const([1])),
    "Gather": lambda n, x: n.op("Gather", x, n.const([[0, 2], [3, 0]]), axis=0),
    "Pad": lambda n, x: n.op("Pad", x, n.const([0, 1, 0, 0, 2, 0])),
    "Split": lambda n, x: n.op("Split", x, n.const([1, 3]), axis=0, outputs=2),
    "Add": lambda n, x: n.op("Add", x, n.weight(6, 1)),
    "Expand": lambda n, x: n.op("Expand", x, n.const([3, 4, 6, 5])),
    "Groups": lambda n, x: n.op(
        "Reshape", n.op("Concat", x, n.weight(4, 2, 5), axis=1), n.const([4, 4, 2, 5])
    ),
    "Softplus": lambda n, x: n.op("Softplus", x),
}
"""Operators that keep indices: what is left is what was there before."""


@pytest.mark.parametrize("loose", [False, True])
@pytest.mark.parametrize("kind", sorted(MOVES))
def test_what_is_left_is_what_was_there(kind: str, loose: bool) -> None:
    net = Net()
    case = recorded(net.case(MOVES[kind](net, net.image(4, 6, 5))))
    analysis = analyse(case, loose)
    assert not analysis.unruly
    before = case.recording
    assert before is not None
    values = {value.name or "" for node in case.model.graph for value in node.outputs}
    inexact = 0
    for plan, chosen in random_plans(analysis, 30, seed=3):
        kept = kept_indices(plan, chosen)
        if kind == "Gather" and any(
            a.anchor[1] == "x" and a.anchor[2] == 0 and s in kept
            for s, a in analysis.classes.items()
        ):
            continue  # indices into what is gone are clamped
        found = record(emit(analysis, plan, chosen))
        exact = exact_values(analysis, kept) & values
        inexact += len(values - exact)
        for value in exact:
            expected = cut(before.get(value), analysis.axes[value] or (), kept)  # type: ignore[arg-type]
            np.testing.assert_allclose(found[value], expected, rtol=1e-6)
    assert (inexact > 0) == (kind == "Groups" and loose)


def one_hot_path() -> Case:
    """One channel of the second segment and the weight that meets it are large."""
    net = Net()
    a, b = (net.rng.random((1, channels, 5, 5)) * 0.1 for channels in (8, 16))
    weight = net.rng.random((6, 4, 1, 1)) * 0.1
    b[0, 14, 2, 3] = weight[5, 2] = 100
    names = [net.input(name, array.astype(np.float32)) for name, array in (("a", a), ("b", b))]
    joined = net.op("Concat", *names, axis=1)
    return net.case(net.op("Conv", joined, net.const(weight, np.float32), group=6))


def test_a_bug_in_certain_values_needs_the_strict_reading() -> None:
    """Groups and segments must go together, the right ones: loose sizes keep others."""

    def interesting(case: Case) -> bool:
        (result,) = (value.name for value in case.model.graph.outputs)
        return float(np.abs(record(case)[result or ""]).max()) >= 5000

    run = drive(one_hot_path(), [dims], interesting)
    assert run.case.size.elements == 4
    assert run.invalid == 0
    loosely = analyse(run.case, loose=True)
    assert [loosely.roots[name].shape for name in "ab"] == [(1, 1, 1, 1)] * 2
