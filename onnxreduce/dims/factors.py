"""Sizes for several axes whose product is given."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as multiply


def factors(total: int, caps: Sequence[int]) -> tuple[int, ...] | None:
    """Factors of `total`, each at most its cap, the first as large as can be; ``None`` if there
    are none."""
    if not caps:
        return () if total == 1 else None
    rest = multiply(caps[1:])
    for first in range(min(total, caps[0]), 0, -1):
        if total % first == 0 and total // first <= rest:
            others = factors(total // first, caps[1:])
            if others is not None:
                return (first, *others)
    return None
