"""Sizes for several axes whose product is what a bug counts.

An axis never grows again, so a search for the smallest product must not paint itself into a
corner: after 1029 = 49*7*3 there is no way to 1025 = 41*5*5. So each step goes to factors that
leave as many of the smaller products within reach as can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from math import prod as multiply

import numpy as np
import numpy.typing as npt

MANY = 300_000
"""No more products than this are looked at."""
CHOICES = 48
"""So many factors are compared with each other at each step."""

Products = npt.NDArray[np.int64]


Band = Callable[[Products], Products]
"""Which of some products, in ascending order, may be tried."""


def lowest(products: Products) -> Products:
    return products[:1]


def highest(products: Products) -> Products:
    return products[-1:]


def middle(products: Products) -> Products:
    """The middle half."""
    start = len(products) // 4
    return products[start : max(start + 1, len(products) * 3 // 4)]


def exactly(number: int) -> Band:
    return lambda products: products[products == number]


def between(low: int, high: int, caps: Sequence[int], band: Band) -> Iterator[tuple[int, ...]]:
    """Factors, each at most its cap, with products between `low` and `high`, both excluded.

    Those first of which the factors leave the most of the products above `low` within reach.
    """
    if multiply(caps) > MANY:
        return
    grid = _grid(caps)
    flat = grid.ravel()
    inside = np.flatnonzero((flat > low) & (flat < high))
    found = np.unique(flat[inside])
    wanted = band(found)
    if not wanted.size:
        return
    places = inside[(flat[inside] >= wanted[0]) & (flat[inside] <= wanted[-1])]
    centre = int(wanted[len(wanted) // 2])
    scored: list[tuple[float, int, tuple[int, ...]]] = []
    for place in places[:: max(1, len(places) // CHOICES)]:
        split = tuple(int(at) + 1 for at in np.unravel_index(place, grid.shape))
        target = int(flat[place])
        within = np.unique(_grid(split))
        kept = np.count_nonzero((within > low) & (within < target))
        possible = np.count_nonzero(found < target)
        scored.append((-(kept + 1) / (possible + 1), abs(target - centre), split))
    for _, _, split in sorted(scored):
        yield split


def _grid(caps: Sequence[int]) -> Products:
    """The product of every choice of factors."""
    rows = [np.arange(1, cap + 1, dtype=np.int64) for cap in caps]
    return reduce(np.multiply.outer, rows)
