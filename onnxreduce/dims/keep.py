"""Which indices of an axis survive: they follow from its expression and from the classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from onnxreduce.dims.expr import Expr, Prod, Sum, Sym, leaves, settled

Indices = npt.NDArray[np.int64]
Kept = Mapping[Sym, Indices]
"""The kept indices of the symbols that change; any other keeps all of its own."""


def keep(expr: Expr, kept: Kept) -> Indices | None:
    """The kept indices of an axis in ascending order of the expression; ``None``: all of them.

    A product is raveled row-major, a sum offset by segment.
    """
    expr = settled(expr)
    if not any(leaf in kept for leaf in leaves(expr)):
        return None
    return _indices(expr, kept)


def _indices(expr: Expr, kept: Kept) -> Indices:
    if isinstance(expr, Sym):
        chosen = kept.get(expr)
        return np.arange(expr.size, dtype=np.int64) if chosen is None else chosen
    if isinstance(expr, Sum):
        offset, segments = 0, []
        for part in expr.parts:
            segments.append(_indices(part, kept) + offset)
            offset += part.size
        return np.concatenate(segments)
    return _ravel(expr, kept)


def _ravel(expr: Prod, kept: Kept) -> Indices:
    result = np.zeros(1, np.int64)
    for part in expr.parts:
        result = (result[:, None] * part.size + _indices(part, kept)[None, :]).reshape(-1)
    return result
