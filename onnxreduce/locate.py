"""Where two backends part: the first node whose inputs agree and whose output does not.

Both sides run once and show every intermediate value; the rest is comparing. That fails in two
ways. A model may be too large to hold all its values twice. And looking may cure: a runtime that
must show a value cannot fuse it away, so that a wrong fusion is not done. Then the outputs of the
model as it is differ while those of the model that shows its values agree. What is asked then, in
this order: the model as the runtime rewrote it, where the runtime hands it out; the values through
which all data flows, which leave what is between them alone; and pieces of the model, cut out and
fed with recorded values, by bisection.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir
import psutil

from onnxreduce.activations import record
from onnxreduce.backends import Backend, BackendError
from onnxreduce.case import Case, InputValue
from onnxreduce.compare import Comparison, Tolerance, compare
from onnxreduce.errors import UsageError
from onnxreduce.graph import Index, index
from onnxreduce.modelio import Store, is_external
from onnxreduce.options import Options
from onnxreduce.pieces import Pieces
from onnxreduce.process import Worker
from onnxreduce.shown import Pair, Shown, bytes_of_values, samples, shown_values
from onnxreduce.start import ModelLike, Start, first_case, other_sizes
from onnxreduce.suspects import between_cuts, first_wrong, region, show
from onnxreduce.watching import Silent, Watched, Watcher

How = Literal["values", "rewritten", "cuts", "nowhere"]

SHARE = 3
"""All values of a side may take one part in so many of the free memory."""

SECONDS = 600.0
"""For recording the values that pieces are fed with."""


@dataclass(frozen=True)
class Location:
    """Where an error is born.

    Attributes:
        how: ``values`` (every value was shown), ``rewritten`` (those of the model as the actual
            side rewrote it), ``cuts`` (pieces of the model were run), or ``nowhere`` (the sides
            agree).
        born: values that differ while what they are computed from agrees, in graph order.
        region: keys of the nodes that go wrong together: those that make the values in `born`,
            with what was fused with them.
        values: all values of the main graph, in graph order.
        vanishes: the outputs agree when every value is shown, though those of the model as it is
            do not.
        outputs: the outputs of the model as it is, where it was run so; else with all values shown.
        samples: the tensors worth looking at, on both sides, those in `born` first.
        runs: how often the expected and the actual side ran something.
        notes: what a reader should know, one line each.
        model: the model.
        expected, actual: the backends, with versions.
        tolerance: what was no difference.
        origin: where the inputs come from.
    """

    how: How
    born: tuple[str, ...]
    region: tuple[str, ...]
    values: tuple[Shown, ...]
    vanishes: bool
    outputs: Comparison
    samples: Mapping[str, Pair]
    runs: tuple[int, int]
    notes: tuple[str, ...]
    model: ir.Model
    expected: str
    actual: str
    tolerance: Tolerance
    origin: str

    @property
    def first(self) -> Shown | None:
        """The first diverging value in graph order, of the node to look at."""
        return next((value for value in self.values if value.state == "born"), None)

    @property
    def passed_on(self) -> list[Shown]:
        """Values that are wrong because others are."""
        return [value for value in self.values if value.state == "passed on"]


def locate(
    model: ModelLike,
    expected: Backend,
    actual: Backend,
    *,
    inputs: Mapping[str, InputValue] | str | Path | None = None,
    tolerance: Tolerance = Tolerance(1e-3, 1e-3),  # noqa: B008 (frozen)
    watcher: Watcher | None = None,
    room: int | None = None,
    **options: Any,
) -> Location:
    """Finds where two backends part.

    Args:
        model: a file, a model in memory, or a case with its inputs.
        expected: the trusted side.
        actual: the side under suspicion.
        inputs: arrays by input name, or a file; default: beside the model, else made up.
        tolerance: what is no difference.
        watcher: told of progress.
        room: bytes that all values of one side may take; default: a share of the free memory.
        **options: `dims` and `seed` of `Options`, for made-up inputs.

    Raises:
        UsageError: the model or inputs cannot be used, or a side fails on the model as it is.
        BackendError: ``unsupported``: a backend cannot be used here.
    """
    if isinstance(inputs, (str, Path)):
        options["inputs"], inputs = Path(inputs), None
    settled = Options(**options)
    start = first_case(model, inputs, settled)
    free = psutil.virtual_memory().available // SHARE if room is None else room
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onnxreduce-")))
        store = Store(folder / "models", is_external(start.case.model))
        sides = Watched(expected, watcher or Silent()), Watched(actual, watcher or Silent())
        path = str(model) if isinstance(model, (str, Path)) else str(store.write(start.case))
        return Locator(start, settled, path, sides, tolerance, store, free).locate()


class Locator:
    """One search; see `locate`."""

    def __init__(
        self,
        start: Start,
        options: Options,
        path: str,
        sides: tuple[Watched, Watched],
        tolerance: Tolerance,
        store: Store,
        room: int,
    ) -> None:
        self._path = path
        self._start = start
        self._options = options
        self._expected, self._actual = sides
        self._watcher = sides[0].watcher
        self._tolerance = tolerance
        self._store = store
        self._room = room
        self._notes: list[str] = []
        self._vanishes = False

    def locate(self) -> Location:
        everything = self._everything()
        if everything is not None and not self._outputs(*everything).agree:
            return self._by_values(*everything)
        plain = self._as_it_is()
        if plain.agree:
            return self._agreement(plain, everything)
        if everything is None:
            return self._by_cuts(plain)
        self._vanishes = True
        self._notes.append(
            f"the outputs differ ({plain.summary()}), but agree when every intermediate value is "
            "shown: showing them prevents what goes wrong, most likely a fusion or another rewrite"
        )
        return self._by_rewrite(plain, everything[0]) or self._by_cuts(plain)

    @property
    def _case(self) -> Case:
        return self._start.case

    @property
    def _known(self) -> Index:
        return index(self._case.model)

    # --- what is run ---

    def _everything(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Every value on both sides; None where that is too much or a side cannot show them."""
        size = bytes_of_values(self._case)
        if size > self._room:
            self._notes.append(
                f"all values of a side take about {size / 2**20:,.0f} MiB, more than there is room "
                "for: looking at the values through which all data flows first"
            )
            return None
        try:
            left = self._expected_first("run_all")
            return left, self._actual.run_all(self._path, self._case.inputs)
        except BackendError as error:
            self._notes.append(f"a side cannot show every value ({_line(error)})")
            return None

    def _expected_first(self, how: Literal["run", "run_all"]) -> dict[str, Any]:
        """The expected side's values; made-up inputs get other sizes where it takes none of
        these."""
        try:
            return getattr(self._expected, how)(self._path, self._case.inputs)  # type: ignore[no-any-return]
        except BackendError as error:
            if error.kind != "run" or not self._start.made_up:
                raise
            for other in other_sizes(self._start, self._options):
                try:
                    values = getattr(self._expected, how)(self._path, other.case.inputs)
                except BackendError:
                    continue
                self._start = other
                return values  # type: ignore[no-any-return]
            raise

    def _as_it_is(self) -> Comparison:
        """The outputs of the model as it is.

        Raises:
            UsageError: a side fails, so that there is nothing to compare.
        """
        try:
            left = self._expected_first("run")
        except BackendError as error:
            raise _failed(self._expected, error, "it cannot tell what is right") from error
        try:
            right = self._actual.run(self._path, self._case.inputs)
        except BackendError as error:
            advice = f"reduce that with --oracle fails --set backend={self._actual.name}"
            raise _failed(self._actual, error, advice) from error
        return self._outputs(left, right)

    def _outputs(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> Comparison:
        names = [name for name in self._known.outputs if name in left]
        return compare({name: left[name] for name in names}, right, self._tolerance)

    # --- ways to find it ---

    def _by_values(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> Location:
        outputs = self._outputs(left, right)
        values = shown_values(self._known, left, right, self._tolerance, self._watcher)
        born = [value for value in values if value.state == "born"]
        nodes = dict.fromkeys(value.node for value in born)
        return self._location("values", values, tuple(nodes), outputs, samples(values, left, right))

    def _agreement(
        self, plain: Comparison, everything: tuple[dict[str, Any], dict[str, Any]] | None
    ) -> Location:
        if everything is not None:
            found = self._by_values(*everything)
            if found.born:
                note = "the outputs agree; what is wrong inside does not reach them"
                return replace(found, outputs=plain, notes=(*found.notes, note))
            return replace(found, how="nowhere", outputs=plain)
        return self._location("nowhere", (), (), plain, {})

    def _by_rewrite(self, plain: Comparison, left: Mapping[str, Any]) -> Location | None:
        """The model as the actual side rewrote it, with its rewrites off."""
        try:
            right = self._actual.run_rewritten(self._path, self._case.inputs)
        except BackendError as error:
            if error.kind != "unsupported":
                self._notes.append(f"the rewritten model cannot be looked at ({_line(error)})")
            return None
        values = shown_values(self._known, left, right, self._tolerance, self._watcher)
        born = [value.name for value in values if value.state == "born"]
        if not born:
            return None
        self._notes.append(
            f"found in the model as {self._actual.name} rewrote it, run without further rewrites; "
            "values that are not there any more are left out"
        )
        together = {key for name in born for key in region(self._known, name, right)}
        found = samples(values, left, right)
        return self._location("rewritten", values, self._sorted(together), plain, found)

    def _by_cuts(self, plain: Comparison) -> Location:
        """The segment between two one-value cuts; its values, unless the error vanishes when they
        are shown; then pieces of it."""
        segment, left, right = self._segment()
        if not self._vanishes and 1 < len(segment) < len(self._known.order):
            inside = {value for key in segment for value in self._known.writes[key]}
            more = self._show(inside)
            if more is not None:
                left, right = {**left, **more[0]}, {**right, **more[1]}
        wrong = first_wrong(self._known, left, right, self._tolerance)
        maker = self._known.producer(wrong[0]) if wrong else None
        if maker and all(v in left or not self._made(v) for v in self._known.reads[maker]):
            how: How = "cuts" if self._vanishes else "values"
            return replace(self._by_values(left, right), outputs=plain, how=how)
        return self._by_pieces(segment, plain, left, right)

    def _segment(self) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
        """The nodes between the last right and the first wrong cut, and what the cuts show."""
        everything = list(self._known.order)
        shown = self._show(set(self._known.cuts()))
        if shown is None:
            return everything, {}, {}
        wrong = first_wrong(self._known, *shown, self._tolerance)
        return between_cuts(self._known, wrong[0]) if wrong else everything, *shown

    def _by_pieces(
        self, segment: list[str], plain: Comparison, left: dict[str, Any], right: dict[str, Any]
    ) -> Location:
        with Worker() as worker, tempfile.TemporaryDirectory(prefix="onnxreduce-") as folder:
            recording = record(self._case, Path(self._path), worker, Path(folder), SECONDS)
            recorded = self._case.with_recording(recording)
            pieces = Pieces(recorded, self._expected, self._actual, self._tolerance, self._store)
            nodes = pieces.smallest(segment)
            if recording.notice:
                self._notes.append(recording.notice)
            last = pieces.last
        for name in last.wrong:  # these are computed from recorded values, which are right
            left[name], right[name] = last.expected[name], last.actual[name]
        born = frozenset(last.wrong)
        values = shown_values(self._known, left, right, self._tolerance, self._watcher, born=born)
        found = samples(values, left, right)
        return self._location("cuts", values, self._sorted(nodes), plain, found)

    def _show(self, names: set[str]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        arguments = self._path, self._case.inputs, names
        try:
            return show(self._expected, *arguments), show(self._actual, *arguments)
        except BackendError as error:
            self._notes.append(f"a side cannot show these values ({_line(error)})")
            return None

    def _made(self, value: str) -> bool:
        return self._known.producer(value) is not None and self._known.depends_on_input(value)

    def _sorted(self, keys: set[str] | list[str]) -> tuple[str, ...]:
        return tuple(self._known.sort(keys))

    def _location(
        self,
        how: How,
        values: tuple[Shown, ...],
        nodes: tuple[str, ...],
        outputs: Comparison,
        found: Mapping[str, Pair],
    ) -> Location:
        return Location(
            how=how,
            born=tuple(value.name for value in values if value.state == "born"),
            region=nodes,
            values=values,
            vanishes=self._vanishes,
            outputs=outputs,
            samples=found,
            runs=(self._expected.runs, self._actual.runs),
            notes=tuple(dict.fromkeys(self._notes)),
            model=self._case.model,
            expected=self._expected.describe(),
            actual=self._actual.describe(),
            tolerance=self._tolerance,
            origin=self._start.origin,
        )


def _failed(side: Watched, error: BackendError, advice: str) -> UsageError:
    return UsageError(f"{side.name} fails on the model ({_line(error)}): {advice}")


def _line(error: BackendError) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:199] + "…"
