"""A graph as a picture: boxes and arrows for a small one, a ribbon of cells for a large one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxreduce.emit.escape import clipped, escaped
from onnxreduce.emit.frame import TITLE_ROOM
from onnxreduce.emit.layered import Placed, place
from onnxreduce.graph import Index

FEW = 48
"""Nodes up to this many are drawn as boxes."""

BOX_HEIGHT, STEP = 44.0, 84.0
LETTER = 7.4
"""About the width of a letter."""

EndKind = tuple[str, str]

Css = Callable[[str], str]
"""The class of a node, by its key."""

Label = Callable[[str], str]
"""A few words on a value, by its name, such as its shape; or nothing."""


@dataclass(frozen=True)
class _Box:
    css: str
    title: str
    top: str
    sub: str
    room: int = 26

    @property
    def width(self) -> float:
        longest = max(len(self.top), len(self.sub) * 0.92)
        return max(74.0, longest * LETTER + 26)


def boxes(
    known: Index, keys: Collection[str], css: Css, label: Label, *, weights: bool = True
) -> str:
    """Some nodes with what they read and make, as boxes from top to bottom.

    Args:
        known: the graph.
        keys: the nodes to draw.
        css: their classes.
        label: what is written beside an arrow.
        weights: there is room for initializers, and for attributes instead of names.
    """
    nodes = known.sort(keys)
    drawn: dict[Hashable, _Box] = {}
    edges: list[tuple[Hashable, Hashable]] = []
    words: dict[Hashable, dict[str, str]] = {}
    for key in nodes:
        for value in known.reads[key]:
            start = _start(known, value, set(nodes))
            if start[0] == "const" and not weights:
                continue
            if start not in drawn:
                drawn[start] = _end_box(known, start)
            edges.append((start, ("node", key)))
            words.setdefault(start, {})[value] = label(value)
        drawn["node", key] = _node_box(known.nodes[key], css(key), weights)
    for value in _leaving(known, nodes):
        end = ("out", value)
        drawn[end] = _Box("io" if value in known.outputs else "io more", value, value, "")
        start = ("node", known.producer(value) or "")
        edges.append((start, end))
        words.setdefault(start, {})[value] = label(value)
    if not drawn:
        return ""
    shown = {vertex: _short(box) for vertex, box in drawn.items()}
    said = {start: ", ".join(text for text in of.values() if text) for start, of in words.items()}
    # A label hangs on either side of the middle: neighbours keep clear of both.
    room = {v: max(box.width, 2 * _width(said.get(v, "")) + 8) for v, box in shown.items()}
    placed = place(list(drawn), edges, room)
    return _svg(shown, list(dict.fromkeys(edges)), said, placed)


def _start(known: Index, value: str, here: set[str]) -> EndKind:
    """The box that a value comes from."""
    key = known.producer(value)
    if key in here:
        return ("node", key or "")
    if key is not None:
        return ("in", value)
    return ("const" if value in known.initializers else "in", value)


def _end_box(known: Index, end: EndKind) -> _Box:
    kind, value = end
    if kind == "const":
        return _Box("io const", value, value, "")
    inside = known.producer(value) is not None
    return _Box("io more" if inside else "io", value, value, "")


def _leaving(known: Index, nodes: Sequence[str]) -> list[str]:
    here = set(nodes)
    return [
        value
        for key in nodes
        for value in known.writes[key]
        if value in known.outputs or any(r not in here for r in known.readers(value))
    ]


def _node_box(node: ir.Node, css: str, roomy: bool) -> _Box:
    found = attributes(node)
    title = "\n".join([tooltip(node), *found])
    key = next((value.name for value in node.outputs if value.name), "")
    if roomy and found:
        return _Box(css, title, node.op_type, ", ".join(found), 56)
    return _Box(css, title, node.op_type, node.name or key or "")


def _short(box: _Box) -> _Box:
    return _Box(box.css, box.title, clipped(box.top, 26), clipped(box.sub, box.room), box.room)


def attributes(node: ir.Node) -> list[str]:
    """Attributes as ``name = value``, without tensors and graphs."""
    found = []
    for attribute in node.attributes.values():
        if attribute.is_ref() or attribute.type in (
            ir.AttributeType.GRAPH,
            ir.AttributeType.GRAPHS,
            ir.AttributeType.TENSOR,
            ir.AttributeType.TENSORS,
        ):
            continue
        content = attribute.value
        if isinstance(content, (list, tuple)):
            content = list(content)
        found.append(clipped(f"{attribute.name} = {content}", 120))
    return found


def tooltip(node: ir.Node) -> str:
    """Operator and names of a node in a line."""
    names = ", ".join(value.name for value in node.outputs if value.name)
    own = f" '{clipped(node.name, 120)}'" if node.name else ""
    domain = f"{node.domain}::" if node.domain else ""
    return f"{domain}{node.op_type}{own} makes {clipped(names, TITLE_ROOM)}"


def _svg(
    drawn: Mapping[Hashable, _Box],
    edges: Sequence[tuple[Hashable, Hashable]],
    words: Mapping[Hashable, str],
    placed: Placed,
) -> str:
    margin = 8.0
    width = placed.right - placed.left + 2 * margin
    height = (max(placed.layer.values()) * STEP) + BOX_HEIGHT + 2 * margin
    left = placed.left - margin
    parts = [
        f'<svg class="graph" viewBox="{left:.1f} {-margin:.1f} {width:.1f} {height:.1f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">'
    ]
    for edge in edges:
        parts.append(_arrow(edge, placed))
    for vertex, text in words.items():
        if text:
            parts.append(_words(vertex, text, placed))
    for vertex, box in drawn.items():
        parts.append(_box(box, placed.x[vertex], placed.layer[vertex] * STEP))
    return "".join([*parts, "</svg>"])


def _width(label: str) -> float:
    """About how far a label reaches from the middle of its box."""
    return len(label) * 6.4 + 7 if label else 0.0


def _words(vertex: Hashable, text: str, placed: Placed) -> str:
    """Below a box, on the side that its arrows leave free."""
    x, y = placed.x[vertex], placed.layer[vertex] * STEP + BOX_HEIGHT + 15
    drift = sum(path[1] - path[0] for (start, _), path in placed.paths.items() if start == vertex)
    css, x = ("shape l", x - 7) if drift > 1 else ("shape", x + 7)
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escaped(text)}</text>'


def _arrow(edge: tuple[Hashable, Hashable], placed: Placed) -> str:
    path = placed.paths[edge]
    first = placed.layer[edge[0]]
    x, y = path[0], first * STEP + BOX_HEIGHT
    line = f"M{x:.1f} {y:.1f}"
    for number, end in enumerate(path[1:], 1):
        # Between two layers the line bends; beside the boxes of a layer it goes straight.
        top = (first + number) * STEP
        bend = (top - y) * 0.5
        line += f"C{x:.1f} {y + bend:.1f} {end:.1f} {top - bend:.1f} {end:.1f} {top - 1:.1f}"
        if number < len(path) - 1:
            line += f"V{top + BOX_HEIGHT:.1f}"
        x, y = end, top + BOX_HEIGHT
    return f'<path class="edge" d="{line}m-3.5-6l3.5 6l3.5-6"/>'


def _box(box: _Box, x: float, y: float) -> str:
    width = box.width
    radius = 20 if box.css.startswith("io") else 9
    middle = y + BOX_HEIGHT / 2
    lines = f'<text class="op" x="{x:.1f}" y="{middle + 5:.1f}">{escaped(box.top)}</text>'
    if box.sub:
        lines = (
            f'<text class="op" x="{x:.1f}" y="{middle - 3:.1f}">{escaped(box.top)}</text>'
            f'<text class="sub" x="{x:.1f}" y="{middle + 14:.1f}">{escaped(box.sub)}</text>'
        )
    title = "\n".join(escaped(clipped(line, TITLE_ROOM)) for line in box.title.split("\n"))
    return (
        f'<g class="{box.css}"><title>{title}</title>'
        f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BOX_HEIGHT:.0f}" '
        f'rx="{radius}"/>{lines}</g>'
    )


def ribbon(known: Index, css: Css, tip: Label) -> str:
    """Every node as a cell: what can run at the same time in one column, columns in depth order.

    Nodes that depend on no input stand over their first reader, half as high.

    Args:
        known: the graph.
        css: class of a node's cell.
        tip: its tooltip.
    """
    depth: dict[str, int] = {}
    for key in known.order:
        depth[key] = 1 + max((depth[k] for k in known.predecessors(key)), default=-1)
    constant = {key for key in known.order if not known.depends_on_input(known.writes[key][0])}
    for key in reversed(known.order):
        if key in constant:
            readers = known.successors(key)
            depth[key] = min((depth[r] - (r not in constant) for r in readers), default=depth[key])
    columns: dict[int, list[str]] = {}
    for key in known.order:
        columns.setdefault(depth[key], []).append(key)
    return (
        '<div class="ribbon">'
        + "".join(
            "<b>"
            + "".join(
                f'<i class="{css(key)}{" const" if key in constant else ""}" '
                f'title="{escaped(tip(key))}"></i>'
                for key in sorted(columns[number], key=lambda k: k not in constant)
            )
            + "</b>"
            for number in sorted(columns)
        )
        + "</div>"
    )
