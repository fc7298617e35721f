"""What an oracle says about a candidate.

The four outcomes follow the delta-debugging literature (Zeller & Hildebrandt, "Simplifying and
Isolating Failure-Inducing Input", TSE 2002), where a test passes, fails or is unresolved; a
reducer for structured data needs a fourth, *invalid*, for what never deserved the question.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(enum.Enum):
    """The four answers to *does this candidate still show the bug?*"""

    INTERESTING = "interesting"
    BORING = "boring"
    INVALID = "invalid"
    """Not a well-formed candidate: decided before the oracle is asked."""
    SKIPPED = "skipped"
    """Cannot be judged: timeout, exit status 125, exception or crash of the oracle."""


@dataclass(frozen=True)
class Verdict:
    """An outcome with its reason.

    Attributes:
        outcome: the answer.
        detail: one line for a person, such as ``max abs 1.658 at Y[0,0,3,4]``.
        signature: names the *kind* of bug seen. A candidate whose signature differs from the
            original's is another bug, and is treated as boring (no slippage). ``None``: unknown.
    """

    outcome: Outcome
    detail: str = ""
    signature: str | None = None

    @classmethod
    def interesting(cls, detail: str = "", signature: str | None = None) -> Verdict:
        return cls(Outcome.INTERESTING, detail, signature)

    @classmethod
    def boring(cls, detail: str = "", signature: str | None = None) -> Verdict:
        return cls(Outcome.BORING, detail, signature)

    @classmethod
    def invalid(cls, detail: str = "") -> Verdict:
        return cls(Outcome.INVALID, detail)

    @classmethod
    def skipped(cls, detail: str = "") -> Verdict:
        return cls(Outcome.SKIPPED, detail)

    def __bool__(self) -> bool:
        """True when the candidate still shows the bug."""
        return self.outcome is Outcome.INTERESTING
