"""Shrink every axis of every stored tensor to the smallest size that shows the bug.

The sizes that are free, and what follows from them, come from `onnxreduce.dims`; here is the
search over them. Nearly all bugs need nearly nothing, so everything goes to its least size at
once; halving over the classes finds those that the bug needs, the smallest product of these is
looked for, and for each of them the smallest size is galloped up to, from below. Sizes that cannot
be cost no question: the plan says so. Least sizes are properties of the bug, so a result with a 65
in it means that 64 does not do.

Where groups of channels meet a concatenation, there are two readings of the same axes. In the
strict one the groups are told apart, so that what is kept of one tensor is what is kept of all
others; but numbers of groups then add up over the concatenation, and many sizes cannot be. The
loose one only keeps sizes equal there. Loose goes first: it leaves half the elements of a
ShuffleNet (557 instead of 1,192), and from the strict minimum there is no way there. A step that it
takes is one that the bug survived, so nothing is lost by it; what a bug in certain values refuses
is then left to the strict reading. Networks without such a place have one reading, and no question
is asked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxreduce.case import Case
from onnxreduce.dims import AxisClass, Change
from onnxreduce.dims.sizes import PARITY, STRIDED, Sizes, below, between, descend, smallest
from onnxreduce.edits import Proposals
from onnxreduce.passes._indices import indices
from onnxreduce.passes._least import everything
from onnxreduce.passes._products import products
from onnxreduce.passes._resizing import Search, Step

NAME = "dims"
RECORDS = True

LOOK_AHEAD = 64
"""How many sizes in a row may be impossible before a class is left as it is."""
PAIRS = 6
"""Up to this many classes, every pair is scaled together."""

Strategy = Callable[[int, int, Sequence[int]], Sizes]


def edits(case: Case) -> Proposals:
    """Loose sizes to a fixpoint, then what only strict ones can do."""
    search = Search(case, loose=True)
    yield from _fixpoint(search)
    if search.analysis.space.distributed:
        yield from _fixpoint(Search(search.case, loose=False))


def _fixpoint(search: Search) -> Step:
    """Sizes to a fixpoint, kernels and pads included, then which indices."""
    origin = search.case
    plain = yield from everything(search, _plain)
    kernels = yield from everything(search, _kernel)
    if kernels:  # an image may be as small as its windows
        yield from everything(search, _plain)
    # Where nothing could go at once, an earlier round has been here: steps down prove it cheaply.
    some = plain or kernels
    strategy: Strategy = smallest if some else descend
    yield from products(search, origin, between if some else below)
    joint: Strategy = smallest
    while True:
        again = yield from _each(search, strategy)
        if not again:
            again = yield from _together(search, joint)
            joint = descend
        strategy = descend
        if not again:
            again = yield from indices(search)
        if not again:
            return some
        some = True


def _plain(entry: AxisClass) -> bool:
    return not entry.kernel


def _kernel(entry: AxisClass) -> bool:
    return entry.kernel


def _each(search: Search, strategy: Strategy) -> Step:
    """The smallest size of every class, the largest first."""
    some = False
    for anchor in [entry.anchor for entry in search.classes()]:
        entry = search.entry(anchor)
        if entry is not None:
            steps = STRIDED if entry.windowed else PARITY
            some = (
                yield from _one(search, entry, strategy(entry.least, entry.size, steps))
            ) or some
    return some


def _one(search: Search, entry: AxisClass, sizes: Sizes) -> Step:
    """Impossible sizes are read as the next possible one."""
    some, asked = False, {entry.size: True}
    try:
        size = next(sizes)
        while True:
            target = _next_possible(search, entry, size, min(s for s, ok in asked.items() if ok))
            if target not in asked:
                edit = search.resize([_spread(entry, target)])
                asked[target] = yield from search.ask(edit)
                if asked[target]:
                    some = True
                    current = search.entry(entry.anchor)
                    if current is None or current.size != target:
                        return True
                    entry = current
            size = sizes.send(asked[target])
    except StopIteration:
        return some


def _next_possible(search: Search, entry: AxisClass, size: int, known: int) -> int:
    for target in range(size, min(known, size + LOOK_AHEAD)):
        if search.possible(entry, target):
            return target
    return known


def _together(search: Search, strategy: Strategy) -> Step:
    """Scale several classes at once: a bug that needs ``a == b`` or ``a == 2b`` holds each of
    them where it is."""
    left = [entry for entry in search.classes() if entry.size > 1]
    groups: list[list[AxisClass]] = [left] if len(left) > 1 else []
    for size in sorted({entry.size for entry in left}, reverse=True):
        equal = [entry for entry in left if entry.size == size]
        if 1 < len(equal) < len(left):
            groups.append(equal)
    if 2 < len(left) <= PAIRS:
        groups += [[a, b] for i, a in enumerate(left) for b in left[i + 1 :]]
    for group in groups:
        if (yield from _scale(search, group, strategy)):
            return True
    return False


def _scale(search: Search, group: Sequence[AxisClass], strategy: Strategy) -> Step:
    whole = {entry.anchor: entry.size for entry in group}
    least = min(whole.values())
    some = False
    sizes = strategy(1, least, PARITY)
    try:
        size = next(sizes)
        while True:
            current = [entry for anchor in whole if (entry := search.entry(anchor)) is not None]
            edit = search.resize(
                _spread(entry, max(1, whole[entry.anchor] * size // least))
                for entry in current
                if entry.anchor in whole
            )
            works = yield from search.ask(edit)
            some = some or works
            size = sizes.send(works)
    except StopIteration:
        return some


def _spread(entry: AxisClass, size: int) -> Change:
    """Some indices of a class, the first and the last among them: neighbours are often alike.
    Positions in an image stay neighbours."""
    if entry.windowed or entry.kernel or not entry.elements or not 1 < size < entry.size:
        return Change(entry.anchor, size)
    kept = tuple(i * (entry.size - 1) // (size - 1) for i in range(size))
    return Change(entry.anchor, size, kept)
