"""Sizes for several axes whose product is what a bug counts.

Not every number is such a product: of axes 64, 7 and 5 long, 1032 = 43*6*4 and 1029 = 49*7*3 can
be made, what lies between cannot. Pure arithmetic, so that no question is spent on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod as multiply

import numpy as np
import numpy.typing as npt

MANY = 2_000_000
"""No more products of all factors but the largest are looked at."""

Products = npt.NDArray[np.int64]


class Factors:
    """The products of one factor for each cap, from one up to it."""

    def __init__(self, caps: Sequence[int]) -> None:
        self.caps = tuple(caps)

    def at_least(self, size: int) -> int | None:
        """The smallest product of `size` or more; ``None``: there is none, or too much to look
        at."""
        if self._heads.size == 0:
            return None
        rest = -(-size // self._heads)
        found = (self._heads * rest)[rest <= max(self.caps)]
        return int(found.min()) if found.size else None

    def splits(self, product: int) -> Iterator[tuple[int, ...]]:
        """All ways to make a product."""
        return _splits(product, self.caps)

    @cached_property
    def _heads(self) -> Products:
        """The products of all factors but the one with the largest cap."""
        small = sorted(self.caps)[:-1]
        heads = np.ones(1, np.int64)
        for cap in small:
            if heads.size * cap > MANY:
                return np.empty(0, np.int64)
            heads = np.unique(np.multiply.outer(heads, np.arange(1, cap + 1, dtype=np.int64)))
        return heads


def _splits(product: int, caps: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    cap, rest = caps[0], caps[1:]
    if not rest:
        if product <= cap:
            yield (product,)
        return
    first = np.arange(-(-product // multiply(rest)), min(cap, product) + 1, dtype=np.int64)
    for factor in first[product % first == 0].tolist():
        for others in _splits(product // factor, rest):
            yield (factor, *others)
