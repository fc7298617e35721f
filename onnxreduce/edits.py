"""What a pass proposes: small, serialisable descriptions of one change to a case.

An edit names values and nodes (a node by its first non-empty output, which is unique in a graph),
never objects, so it survives pickling, the journal and earlier edits. It is applied to the
*current* case, whatever was accepted in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Protocol

import onnx_ir as ir

from onnxreduce.case import Case


class Conflict(Exception):
    """The edit does not fit this case: what it names is gone, or nothing would change."""


class Edit(Protocol):
    """One change. Implementations are frozen dataclasses of plain data."""

    def apply(self, case: Case) -> Case:
        """A new case; `case` and everything reachable from it stay as they are.

        Raises:
            Conflict: the edit does not fit `case`.
        """

    def describe(self) -> str:
        """A few words for the journal and the report, such as ``delete 12 nodes``."""


Proposals = Generator[Edit, Case | None, None]
"""How a pass talks to the engine: it yields an edit of the current case, and is sent the new
current case when the edit was accepted, ``None`` when it was not. A pass may stop at any time."""

Pass = Callable[[Case], Proposals]
"""A pass must be deterministic: the engine may run it again with other answers (speculation)."""


def key(node: ir.Node) -> str:
    """The name by which edits know a node: its first non-empty output.

    Raises:
        Conflict: the node has no named output, so nothing can depend on it.
    """
    for value in node.outputs:
        if value.name:
            return value.name
    raise Conflict(f"a {node.op_type} node has no named output")


def keyed(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """The nodes that edits can name."""
    return (node for node in nodes if any(value.name for value in node.outputs))
