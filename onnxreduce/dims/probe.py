"""What an operator without a rule does to axes, found by running it on tiny tensors.

One axis at a time is made longer (``n + 1``, then ``2n``: a shorter one can be hidden by
broadcasting or clamping), alone, then together with each other axis of the same size, then with
all of them. What grows together is one class; what grows in the output is the same axis, or a
linear function of it. Only what also works at size one, with the integer inputs as they are, is
trusted; all else is frozen. ONNX's own reference implementation runs the node: it is slow but
cannot crash this process, and it knows functions.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from onnxreduce.dims.expr import Expr
from onnxreduce.dims.provenance import LONGEST
from onnxreduce.dims.site import Site, Unruly
from onnxreduce.tensors import Array

TINY = 8
LARGEST = 20_000
"""Above this many elements an operator is not run at its real sizes."""

Place = tuple[int, int]
"""An axis: input (or output), position."""
Shapes = dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class Group:
    """Input axes that grow together, and output axes that follow: ``slope * size + offset``."""

    members: tuple[Place, ...]
    outputs: tuple[tuple[Place, int, int], ...]


_found: dict[Any, tuple[Group, ...] | None] = {}


def probe(n: Site) -> None:
    """Say about a node what probing finds.

    Raises:
        Unruly: it cannot be run here, or nothing was found.
    """
    if any(_has_graph(attribute) for attribute in n.node.attributes.values()):
        raise Unruly("it holds a subgraph")
    shapes = {i: n.sh(i) for i in range(n.arity) if n.has(i)}
    runner = _Runner(n, _fixed(n, shapes))
    where = (runner.identity, tuple(shapes.items()))
    if where not in _found:
        _found[where] = _groups(runner, shapes)
    groups = _found[where]
    if not groups:
        raise Unruly("probing found no free axis")
    _say(n, groups)


def _has_graph(attribute: Any) -> bool:
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return not isinstance(attribute, ir.Attr) or attribute.type in kinds


def _fixed(n: Site, shapes: Shapes) -> dict[int, Array]:
    """Integer inputs keep their values: they are parameters or indices."""
    fixed: dict[int, Array] = {}
    for i, shape in shapes.items():
        array = n.val(i)
        if array is None:
            raise Unruly(f"input {i} is not known")
        if array.dtype.kind in "iuOSU":
            if int(np.prod(shape)) > LONGEST:
                raise Unruly("a large integer input")
            fixed[i] = array
        elif array.dtype.kind not in "fb":
            raise Unruly("an input of an unusual type")
    return fixed


class _Runner:
    """The node alone, as a model for the reference implementation."""

    def __init__(self, n: Site, fixed: Mapping[int, Array]) -> None:
        self.fixed = fixed
        self.types = {i: _dtype(n, i) for i in range(n.arity) if n.has(i)}
        node = ir.to_proto(n.node)
        assert isinstance(node, onnx.NodeProto)
        names = [f"x{i}" if n.has(i) else "" for i in range(n.arity)]
        del node.input[:]
        node.input.extend(names)
        outputs = [f"y{j}" if value.name else "" for j, value in enumerate(n.node.outputs)]
        del node.output[:]
        node.output.extend(outputs)
        model = n.analysis.case.model
        imports = [onnx.helper.make_opsetid(d, v) for d, v in model.opset_imports.items()]
        functions = [ir.to_proto(function) for function in model.functions.values()]
        graph = onnx.helper.make_graph(
            [node],
            "probe",
            [onnx.helper.make_empty_tensor_value_info(name) for name in names if name],
            [onnx.helper.make_empty_tensor_value_info(name) for name in outputs if name],
        )
        self.outputs = [j for j, name in enumerate(outputs) if name]
        self.model = onnx.helper.make_model(graph, opset_imports=imports, functions=functions)
        values = tuple((i, array.tobytes()) for i, array in fixed.items())
        self.identity = (self.model.SerializeToString(deterministic=True), values)
        self._evaluator: ReferenceEvaluator | None = None

    def shapes(self, shapes: Shapes) -> Shapes | None:
        """Output shapes for input shapes; ``None`` when the node cannot run so."""
        if sum(int(np.prod(shape)) for shape in shapes.values()) > LARGEST:
            return None
        feeds = {f"x{i}": self._feed(i, shape) for i, shape in shapes.items()}
        try:
            if self._evaluator is None:
                self._evaluator = ReferenceEvaluator(self.model)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                results = self._evaluator.run(None, feeds)
        except Exception:
            return None  # whatever it raises, these sizes do not go together
        return {j: np.shape(result) for j, result in zip(self.outputs, results, strict=True)}

    def _feed(self, i: int, shape: tuple[int, ...]) -> Array:
        if i in self.fixed:
            return self.fixed[i][tuple(slice(size) for size in shape)]
        return np.ones(shape, self.types[i])


def _dtype(n: Site, i: int) -> np.dtype[Any]:
    array = n.val(i)
    assert array is not None
    return array.dtype


def _groups(runner: _Runner, real: Shapes) -> tuple[Group, ...] | None:
    for shapes in (_tiny(runner, real), real):
        base = runner.shapes(shapes)
        if base is not None:
            return tuple(_search(runner, shapes, base))
    return None


def _tiny(runner: _Runner, real: Shapes) -> Shapes:
    """Large sizes replaced by small ones, different ones by different ones."""
    sizes = sorted({size for i, s in real.items() if i not in runner.fixed for size in s})
    small = {size: size if size <= TINY else TINY + 1 + at for at, size in enumerate(sizes)}
    return {
        i: s if i in runner.fixed else tuple(small[size] for size in s) for i, s in real.items()
    }


def _search(runner: _Runner, shapes: Shapes, base: Shapes) -> Iterator[Group]:
    places = [
        (i, at)
        for i, shape in shapes.items()
        if i not in runner.fixed
        for at, size in enumerate(shape)
        if size > 1
    ]
    done: set[Place] = set()
    for place in places:
        if place in done:
            continue
        partners = [p for p in places if p != place and _at(shapes, p) == _at(shapes, place)]
        for members in _candidates(place, [p for p in partners if p not in done]):
            group = _grown(runner, shapes, base, members)
            if group is not None:
                done.update(members)
                yield group
                break


def _at(shapes: Shapes, place: Place) -> int:
    return shapes[place[0]][place[1]]


def _candidates(place: Place, partners: Sequence[Place]) -> Iterator[tuple[Place, ...]]:
    yield (place,)
    for partner in partners:
        yield (place, partner)
    if len(partners) > 1:
        yield (place, *partners)


def _grown(
    runner: _Runner, shapes: Shapes, base: Shapes, members: tuple[Place, ...]
) -> Group | None:
    size = _at(shapes, members[0])
    longer = runner.shapes(_with(shapes, members, size + 1))
    double = runner.shapes(_with(shapes, members, 2 * size))
    if longer is None or double is None:
        return None
    outputs: list[tuple[Place, int, int]] = []
    for j, shape in base.items():
        if len(longer[j]) != len(shape) or len(double[j]) != len(shape):
            return None
        for at, before in enumerate(shape):
            slope = longer[j][at] - before
            if double[j][at] - before != slope * size:
                return None
            if slope:
                outputs.append(((j, at), slope, before - slope * size))
    for less in {1, size - 1}:
        found = runner.shapes(_with(shapes, members, less))
        if found is None or any(
            found[j][at] != slope * less + offset for (j, at), slope, offset in outputs
        ):
            return None
    return Group(members, tuple(outputs))


def _with(shapes: Shapes, members: Iterable[Place], size: int) -> Shapes:
    lists = {i: list(shape) for i, shape in shapes.items()}
    for i, at in members:
        lists[i][at] = size
    return {i: tuple(shape) for i, shape in lists.items()}


def _say(n: Site, groups: Sequence[Group]) -> None:
    """Unify what grew together; an output axis that several classes change stays as it is."""
    free = {place for group in groups for place in group.members}
    touched = [place for group in groups for place, _, _ in group.outputs]
    outputs: dict[Place, Expr] = {}
    for group in groups:
        axis = n.ax(group.members[0][0])[group.members[0][1]]
        for i, at in group.members:
            n.unify(axis, n.ax(i)[at])
        for place, slope, offset in group.outputs:
            if touched.count(place) > 1:
                n.freeze(axis)
            elif (slope, offset) == (1, 0):
                outputs[place] = axis
            else:
                outputs[place] = n.driven(*_linear(n, place, axis, slope), "probed")
    for i in range(n.arity):
        for at, axis in enumerate(n.ax(i) if n.has(i) else ()):
            if (i, at) not in free:
                n.freeze(axis)
    for j, value in enumerate(n.node.outputs):
        if value.name:
            shape = n.shape_out(j)
            n.out([outputs.get((j, at)) or n.rigid(size) for at, size in enumerate(shape)], j)


def _linear(n: Site, place: Place, axis: Expr, slope: int) -> tuple[int, Any]:
    """The offset is taken at the real size: the probed one may have been another."""
    now = n.shape_out(place[0])[place[1]]
    offset = now - slope * axis.size
    return now, lambda size: slope * size(axis) + offset
