"""Places for the nodes of a small graph: layers from top to bottom, few crossings.

The classic four steps (Sugiyama, Tagawa & Toda, "Methods for visual understanding of hierarchical
system structures", 1981): layers by longest path, dummies where an edge passes a layer, order
within the layers by barycenters, coordinates that draw neighbours together.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 8
DUMMY_WIDTH = 24.0


@dataclass(frozen=True)
class Placed:
    """Where things are.

    Attributes:
        x: the middle of each vertex.
        layer: its layer, from 0.
        paths: for each edge the x of every layer from its start to its end.
        left, right: the outermost sides of all.
    """

    x: Mapping[Hashable, float]
    layer: Mapping[Hashable, int]
    paths: Mapping[tuple[Hashable, Hashable], list[float]]
    left: float
    right: float


def place(
    vertices: Sequence[Hashable],
    edges: Sequence[tuple[Hashable, Hashable]],
    widths: Mapping[Hashable, float],
    gap: float = 22.0,
) -> Placed:
    """Lay out an acyclic graph.

    Args:
        vertices: in topological order.
        edges: between them, the way the data goes.
        widths: of the vertices.
        gap: kept free between neighbours in a layer.
    """
    layer = _layers(vertices, edges)
    rows, chains, width = _with_dummies(vertices, edges, layer, widths)
    above, below = _neighbours(chains)
    _order(rows, above, below)
    x = _coordinates(rows, above, below, width, gap)
    sides = [(x[v] - width[v] / 2, x[v] + width[v] / 2) for row in rows for v in row]
    return Placed(
        x={vertex: x[vertex] for vertex in vertices},
        layer=layer,
        paths={edge: [x[v] for v in chain] for edge, chain in chains.items()},
        left=min((left for left, _ in sides), default=0.0),
        right=max((right for _, right in sides), default=0.0),
    )


def _layers(
    vertices: Sequence[Hashable], edges: Sequence[tuple[Hashable, Hashable]]
) -> dict[Hashable, int]:
    """By longest path from the sources; sources as far down as their readers allow."""
    before: dict[Hashable, list[Hashable]] = {vertex: [] for vertex in vertices}
    after: dict[Hashable, list[Hashable]] = {vertex: [] for vertex in vertices}
    for start, end in edges:
        before[end].append(start)
        after[start].append(end)
    layer: dict[Hashable, int] = {}
    for vertex in vertices:
        layer[vertex] = max((layer[v] + 1 for v in before[vertex]), default=0)
    for vertex in reversed(vertices):
        if not before[vertex] and after[vertex]:
            layer[vertex] = min(layer[v] for v in after[vertex]) - 1
    return layer


def _with_dummies(
    vertices: Sequence[Hashable],
    edges: Sequence[tuple[Hashable, Hashable]],
    layer: Mapping[Hashable, int],
    widths: Mapping[Hashable, float],
) -> tuple[
    list[list[Hashable]],
    dict[tuple[Hashable, Hashable], list[Hashable]],
    dict[Hashable, float],
]:
    rows: list[list[Hashable]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    width = dict(widths)
    for vertex in vertices:
        rows[layer[vertex]].append(vertex)
    chains: dict[tuple[Hashable, Hashable], list[Hashable]] = {}
    for start, end in dict.fromkeys(edges):
        between: list[Hashable] = [
            ("dummy", start, end, number) for number in range(layer[start] + 1, layer[end])
        ]
        for number, dummy in enumerate(between, layer[start] + 1):
            rows[number].append(dummy)
            width[dummy] = DUMMY_WIDTH
        chains[start, end] = [start, *between, end]
    return rows, chains, width


Links = dict[Hashable, list[Hashable]]


def _neighbours(chains: Mapping[tuple[Hashable, Hashable], list[Hashable]]) -> tuple[Links, Links]:
    above: Links = {}
    below: Links = {}
    for chain in chains.values():
        for upper, lower in pairwise(chain):
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
    return above, below


def _order(rows: list[list[Hashable]], above: Links, below: Links) -> None:
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for row in rows[1:] if down else rows[-2::-1]:
            other = rows[rows.index(row) + (-1 if down else 1)]
            place = {vertex: number for number, vertex in enumerate(other)}
            own = {vertex: number for number, vertex in enumerate(row)}

            def centre(
                vertex: Hashable,
                near: Links = near,
                place: dict[Hashable, int] = place,
                own: dict[Hashable, int] = own,
            ) -> float:
                linked = [place[v] for v in near.get(vertex, []) if v in place]
                return sum(linked) / len(linked) if linked else own[vertex]

            row.sort(key=centre)


def _coordinates(
    rows: Sequence[Sequence[Hashable]],
    above: Links,
    below: Links,
    width: Mapping[Hashable, float],
    gap: float,
) -> dict[Hashable, float]:
    x: dict[Hashable, float] = {}
    for row in rows:
        total = sum(width[v] for v in row) + gap * (len(row) - 1)
        at = -total / 2
        for vertex in row:
            x[vertex] = at + width[vertex] / 2
            at += width[vertex] + gap
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wished = [_wish(vertex, x, above, below) for vertex in row]
            _settle(row, wished, x, width, gap)
    return x


def _wish(vertex: Hashable, x: Mapping[Hashable, float], above: Links, below: Links) -> float:
    linked = above.get(vertex, []) + below.get(vertex, [])
    return sum(x[v] for v in linked) / len(linked) if linked else x[vertex]


def _settle(
    row: Sequence[Hashable],
    wished: Sequence[float],
    x: dict[Hashable, float],
    width: Mapping[Hashable, float],
    gap: float,
) -> None:
    """As near to the wishes as order and width allow: the mean of packing from either side."""
    apart = [(width[a] + width[b]) / 2 + gap for a, b in pairwise(row)]
    right, left = list(wished), list(wished)
    for number, distance in enumerate(apart):
        right[number + 1] = max(right[number + 1], right[number] + distance)
    for number in range(len(apart) - 1, -1, -1):
        left[number] = min(left[number], left[number + 1] - apart[number])
    for vertex, first, second in zip(row, right, left, strict=True):
        x[vertex] = (first + second) / 2
