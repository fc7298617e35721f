"""Where to look first: names of values or nodes that a bug is likely to be about.

Five sources behind one interface, best first (see `SOURCES`). Each runs the case a few times, names
what it suspects, likeliest first, and names nothing when it has no opinion or cannot look. They
differ in what they disturb: a runtime that must show a value cannot fuse it away, so the more is
shown, the more bugs of optimisers vanish while one looks.

The idea that all but the messages share: an error is *born* where a value is wrong although the
values that it is computed from are right. All other wrong values only pass it on.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import onnx
import onnx_ir as ir

from onnxreduce.backends import BackendError, Value
from onnxreduce.backends.cause import mentioned
from onnxreduce.backends.expose import exposed
from onnxreduce.compare import EXACT, Tolerance, compare
from onnxreduce.differential import all_finite
from onnxreduce.graph import Index, index
from onnxreduce.modelio import load_model

Values = Mapping[str, Value]


class Side(Protocol):
    """What runs models, and shows how: a `Backend`, or a tool in front of one."""

    def run(self, model_path: str, inputs: Values) -> dict[str, Value]: ...
    def run_all(self, model_path: str, inputs: Values) -> dict[str, Value]: ...
    def run_rewritten(self, model_path: str, inputs: Values) -> dict[str, Value]: ...
    def rewrite(self, model_path: str, target: str) -> None: ...


@dataclass(frozen=True)
class Scene:
    """A case that goes wrong, and the two sides.

    Attributes:
        model_path: the model.
        inputs: by name.
        expected: the trusted side.
        actual: the side under suspicion.
        tolerance: what is no difference.
    """

    model_path: str
    inputs: Values
    expected: Side
    actual: Side
    tolerance: Tolerance = EXACT

    @cached_property
    def model(self) -> ir.Model:
        return load_model(self.model_path)

    @property
    def known(self) -> Index:
        return index(self.model)


Source = Callable[[Scene], list[str]]


def suspects(scene: Scene, sources: Sequence[Source] | None = None) -> list[str]:
    """What the first source that has an opinion names."""
    for source in SOURCES if sources is None else sources:
        try:
            names = source(scene)
        except BackendError:
            continue
        if names:
            return names
    return []


def rewritten_model(scene: Scene) -> list[str]:
    """Values that the model computes wrongly as the actual side rewrote it, with no rewrites any
    more: an optimiser's bug survives that, however much is shown."""
    right = scene.actual.run_rewritten(scene.model_path, scene.inputs)
    left = scene.expected.run_all(scene.model_path, scene.inputs)
    wrong = first_wrong(scene.known, left, right, scene.tolerance)
    return wrong if len(wrong) != 1 else region(scene.known, wrong[0], right)


def cut_points(scene: Scene) -> list[str]:
    """The nodes between the last right and the first wrong value of those through which all data
    flows, the last node first. What is fused between such values stays fused.

    Where the error is still there when the values between are shown too, only its birthplace.
    """
    wrong = _wrong_of(scene, scene.known.cuts())
    segment = between_cuts(scene.known, wrong[0]) if wrong else []
    if len(segment) > 1:
        inside = [value for key in segment for value in scene.known.writes[key]]
        closer = _wrong_of(scene, [*scene.known.cuts(), *inside])
        if closer and scene.known.producer(closer[0]) in segment:
            return closer
    return segment[::-1]


def _wrong_of(scene: Scene, shown: Sequence[str]) -> list[str]:
    """Where errors are born, as far as one sees when these values are shown."""
    left, right = (
        show(side, scene.model_path, scene.inputs, shown) for side in (scene.expected, scene.actual)
    )
    return first_wrong(scene.known, left, right, scene.tolerance)


def every_value(scene: Scene) -> list[str]:
    """Where errors are born, with every value shown: exact for two different runtimes."""
    left, right = (
        side.run_all(scene.model_path, scene.inputs) for side in (scene.expected, scene.actual)
    )
    return first_wrong(scene.known, left, right, scene.tolerance)


def names_in_message(scene: Scene) -> list[str]:
    """Nodes and values that the actual side's error message mentions."""
    try:
        scene.actual.run(scene.model_path, scene.inputs)
    except BackendError as error:
        return mentioned(f"{error.message}\n{error.log}", hollow(scene.model_path))
    return []


def rarest_rewrite(scene: Scene) -> list[str]:
    """The group of neighbouring nodes, of those that the actual side rewrote, whose operators
    occur together least often: what is rewritten everywhere works somewhere."""
    with tempfile.TemporaryDirectory(prefix="onnxreduce-") as folder:
        target = str(Path(folder, "rewritten.onnx"))
        scene.actual.rewrite(scene.model_path, target)
        after = onnx.load(target, load_external_data=False)
    groups = rewritten_groups(scene.known, after)
    kinds = [_kind(scene.known, group) for group in groups]
    count = Counter(kinds)
    rare = min(zip(kinds, groups, strict=True), key=lambda pair: count[pair[0]], default=None)
    return rare[1] if rare else []


def first_not_finite(scene: Scene) -> list[str]:
    """Where the actual side makes NaN or infinity of finite values."""
    shown = scene.actual.run_all(scene.model_path, scene.inputs)
    odd = {name for name, value in shown.items() if not all_finite({name: value})}
    return born(scene.known, odd, shown)


SOURCES: tuple[Source, ...] = (
    rewritten_model,
    cut_points,
    every_value,
    names_in_message,
    rarest_rewrite,
)
"""All, best first."""

FAILURE_SOURCES: tuple[Source, ...] = (names_in_message, rarest_rewrite)
"""Those that have something to say of a model that does not load or run."""


NONFINITE_SOURCES: tuple[Source, ...] = (first_not_finite, rarest_rewrite)
"""Those that need no right values beside the wrong ones."""


def show(side: Side, model_path: str, inputs: Values, only: Collection[str]) -> dict[str, Value]:
    """The outputs of a model and some more of its values, on any backend.

    Raises:
        BackendError: as `Backend.run`.
    """
    with exposed(model_path, frozenset(only)) as path:
        return side.run(path, inputs)


def first_wrong(known: Index, expected: Values, actual: Values, tolerance: Tolerance) -> list[str]:
    """Of the values that both sides show, those where an error is born, in graph order."""
    seen = {name: value for name, value in expected.items() if name in actual}
    wrong = {d.name for d in compare(seen, actual, tolerance).wrong}
    # An element of a sequence is called name.0.
    return born(known, {n if n in seen else n.rpartition(".")[0] for n in wrong}, seen)


def born(known: Index, wrong: Collection[str], seen: Collection[str]) -> list[str]:
    """The wrong values whose nearest seen ancestors are all right, in graph order."""
    spoilt: set[str] = set()
    found: list[str] = []
    for key in known.order if wrong else ():
        below = not spoilt.isdisjoint(known.reads[key])
        for name in known.writes[key]:
            if name in wrong and not below:
                found.append(name)
            if name in wrong or (below and name not in seen):
                spoilt.add(name)
    return found


def region(known: Index, value: str, seen: Collection[str]) -> list[str]:
    """The nodes that a value is computed by from seen ones, its own node first."""
    found: dict[str, None] = {}
    waiting = [known.producer(value)]
    while waiting:
        key = waiting.pop()
        if key is not None and key not in found:
            found[key] = None
            waiting.extend(known.producer(n) for n in known.reads[key] if n not in seen)
    return list(found)


def between_cuts(known: Index, value: str) -> list[str]:
    """The nodes of the segment between one-value cuts that makes a value, up to its producer."""
    key = known.producer(value)
    for segment in known.segments():
        if key in segment:
            cone = known.cone([value])
            return [name for name in segment if name in cone]
    return []


def rewritten_groups(known: Index, after: onnx.ModelProto) -> list[list[str]]:
    """Connected nodes that the rewritten model does not have as they were, in graph order."""
    kept = {name: node for node in after.graph.node for name in node.output if name}
    changed = {key for key in known.order if _changed(known.nodes[key], kept.get(key))}
    groups: list[list[str]] = []
    while changed:
        waiting = [min(changed, key=known.position.__getitem__)]
        changed.difference_update(waiting)
        group: list[str] = []
        while waiting:
            group.append(waiting.pop())
            near = changed.intersection(known.neighbours(group[-1]))
            changed -= near
            waiting.extend(near)
        groups.append(known.sort(group))
    return groups


def _changed(node: ir.Node, after: onnx.NodeProto | None) -> bool:
    if after is None or (node.op_type, node.domain) != (after.op_type, after.domain):
        return True
    return [value.name if value else "" for value in node.inputs] != list(after.input)


def _kind(known: Index, group: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(known.nodes[key].op_type for key in group))


def hollow(model_path: str) -> onnx.ModelProto:
    """A model without the data in its external files."""
    return onnx.load(model_path, load_external_data=False)
