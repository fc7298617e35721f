"""In what order passes run, as data: coarse to fine, structure before sizes, sizes before values.

Structure first costs the fewest questions; sizes next make every later question cheap; then the
small passes. The engine repeats the whole until nothing changes, which proves the result 1-minimal
under every pass that is wanted to the end.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType

from onnxreduce.case import Case
from onnxreduce.dims import rules
from onnxreduce.edits import Pass, Proposals
from onnxreduce.passes import suspects as suspect_pass
from onnxreduce.passes.suspects import Suspects

When = Callable[[Case], bool]

FEW = 12
"""Up to this many nodes each is tried by itself; beyond, coarse passes pay."""

MANY = 24
"""Beyond this many nodes the cuts have not done their work: the bug may die at any cut."""


def always(case: Case) -> bool:
    return True


def few(case: Case) -> bool:
    return case.size.nodes <= FEW


def some(case: Case) -> bool:
    return case.size.nodes > FEW


def many(case: Case) -> bool:
    return case.size.nodes > MANY


@dataclass
class Fewer:
    """Wanted at first, and again whenever many nodes are left but fewer than the last time.

    A search by guessing proves nothing that the later sweeps do not prove, so repeating it on
    nodes that it has been through would only cost questions.
    """

    _last: int | None = field(default=None, init=False)

    def __call__(self, case: Case) -> bool:
        last, count = self._last, case.size.nodes
        self._last = count
        return last is None or FEW < count < last


@dataclass(frozen=True)
class Stage:
    """A pass with its place in the schedule.

    Attributes:
        name: for the journal and the progress.
        run: the pass.
        when: is it worth running on this case?
        records: does it need recorded values?
    """

    name: str
    run: Pass
    when: When = always
    records: bool = False

    def wanted(self, case: Case) -> bool:
        return self.when(case)

    def edits(self, case: Case) -> Proposals:
        return self.run(case)


SMALL = (
    "inline",
    "subgraphs",
    "dims",
    "ranks",
    "operands",
    "constants",
    "optional",
    "attributes",
    "values",
    "types",
    "tidy",
)
"""The passes after structure, by module."""


def stages(*, cuts: bool = True, suspects: Suspects | None = None) -> list[Stage]:
    """The schedule of one round.

    Args:
        cuts: may values inside the model become inputs? If not, the result has the original's
            inputs, as an oracle that feeds the model itself needs.
        suspects: names values or nodes to look at first.
    """
    structure = _with_cuts(suspects) if cuts else _without_cuts()
    last = [stage("pairs", few)] if cuts else []
    return [*structure, *(stage(name) for name in SMALL), *last]


def preload() -> None:
    """Loads what takes long and is needed late, for a time when the oracle is busy."""
    importlib.import_module("onnxscript.optimizer")
    rules.known()


def stage(module: str, when: When = always) -> Stage:
    """A pass by the name of its module in `onnxreduce.passes`."""
    found = importlib.import_module(f"onnxreduce.passes.{module}")
    return Stage(found.NAME, found.edits, when, _records(found))


def _with_cuts(suspects: Suspects | None) -> list[Stage]:
    first = [] if suspects is None else [_suspects(suspects)]
    return [
        stage("outputs"),
        *first,
        stage("cuts", Fewer()),
        stage("regions", many),
        stage("chunks", some),
        stage("merge", few),
        stage("nodes"),
        stage("bypass"),
        stage("inputs"),
    ]


def _without_cuts() -> list[Stage]:
    return [
        stage("outputs"),
        stage("prefix", Fewer()),
        stage("regions"),
        stage("bypass"),
        stage("merge", few),
    ]


def _suspects(suspects: Suspects) -> Stage:
    run = suspect_pass.around(suspects)
    return Stage(suspect_pass.NAME, run, Fewer(), _records(suspect_pass))


def _records(module: ModuleType) -> bool:
    return bool(getattr(module, "RECORDS", False))
