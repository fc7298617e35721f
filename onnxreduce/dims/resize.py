"""The edit that gives classes of axes new sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxreduce.case import Case
from onnxreduce.dims.analysis import Analysis, analyse
from onnxreduce.dims.classes import Anchor
from onnxreduce.dims.emit import emit
from onnxreduce.dims.expr import Sym
from onnxreduce.dims.keep import Indices
from onnxreduce.dims.solve import Plan
from onnxreduce.edits import Conflict


@dataclass(frozen=True)
class Change:
    """A class, named by an anchor, and what is to be left of it.

    Attributes:
        kept: the indices to keep, of the class as it is; ``None``: the first `size`.
        soft: other classes may make it larger than `size` again.
    """

    anchor: Anchor
    size: int
    kept: tuple[int, ...] | None = None
    soft: bool = False


@dataclass(frozen=True)
class Resize:
    """Give classes of axes new sizes; everything that depends on them follows.

    Attributes:
        loose: where groups meet concatenations only sizes stay consistent, see `Space`.
        since: an earlier, larger case that is resized in the place of the current one: axes do not
            grow, so this is the only way to trade one for another.
    """

    changes: tuple[Change, ...]
    loose: bool = False
    since: Case | None = None

    def apply(self, case: Case) -> Case:
        """Raises:
        Conflict: a class is gone, or no consistent sizes exist.
        """
        analysis = analyse(case if self.since is None else self.since, self.loose)
        plan, chosen = self.plan(analysis)
        if not plan.changed() and not chosen:
            raise Conflict("no size changes")
        return emit(analysis, plan, chosen)

    def plan(self, analysis: Analysis) -> tuple[Plan, dict[Sym, Indices]]:
        """Sizes for all symbols, and the indices that were chosen.

        Raises:
            Conflict: a class is gone, or no consistent sizes exist.
        """
        asked: dict[Sym, int] = {}
        wished: dict[Sym, int] = {}
        chosen: dict[Sym, Indices] = {}
        for change in self.changes:
            symbol = analysis.find(change.anchor)
            (wished if change.soft else asked)[symbol] = change.size
            if change.kept is not None:
                if len(change.kept) != change.size or max(change.kept) >= symbol.size:
                    raise Conflict(f"indices {change.kept} do not fit {change.anchor}")
                chosen[symbol] = np.array(change.kept, np.int64)
        return analysis.plan(asked, wished), chosen

    def describe(self) -> str:
        first = ", ".join(
            f"{change.anchor[1]}[{change.anchor[2]}] to {change.size}"
            for change in self.changes[:2]
        )
        more = len(self.changes) - 2
        return f"resize {first}" + (f" and {more} more" if more > 0 else "")
