"""LSTM, GRU and RNN: gates are stacked on the hidden axis."""

from __future__ import annotations

from onnxreduce.dims.expr import Expr, product
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site


@rule("LSTM", "GRU", "RNN")
def recurrent(n: Site) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[n.op_type]
    w, r = n.ax(1), n.ax(2)
    directions, hidden = w[0], r[2]
    stacked = product((n.rigid(gates), hidden))
    n.match(w, (directions, stacked, n.ax(0)[2]))
    n.match(r, (directions, stacked, hidden))
    _states(n, gates, directions, hidden)


@rule("DynamicQuantizeLSTM", domain="com.microsoft")
def quantised_lstm(n: Site) -> None:
    """The weights are transposed, and have scales: for each direction, or each gate's place."""
    w, r = n.ax(1), n.ax(2)
    directions, hidden = w[0], r[1]
    stacked = product((n.rigid(4), hidden))
    n.match(w, (directions, n.ax(0)[2], stacked))
    n.match(r, (directions, hidden, stacked))
    for i in range(8, 12):
        n.match(n.ax(i), (directions, stacked)[: n.rank(i)])
    _states(n, 4, directions, hidden)


def _states(n: Site, gates: int, directions: Expr, hidden: Expr) -> None:
    x = n.ax(0)
    batch_first = n.number("layout") == 1
    batch, time = (x[0], x[1]) if batch_first else (x[1], x[0])
    _mend_directions(n, directions)
    if n.has(3):
        n.match(n.ax(3), (directions, product((n.rigid(2 * gates), hidden))))
    if n.has(4):
        n.unify(n.ax(4)[0], batch)
        n.clamp(4, time, counts=True)
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    for i in (5, 6):
        if n.has(i):
            n.match(n.ax(i), state)
    if n.has(7):
        n.match(n.ax(7), (directions, product((n.rigid(3), hidden))))
    n.attr("hidden_size", lambda size: size(hidden))
    n.out((batch, time, directions, hidden) if batch_first else (time, directions, batch, hidden))
    n.out(state, 1)
    n.out(state, 2)


def _mend_directions(n: Site, directions: Expr) -> None:
    """The first of two directions is the forward one."""
    if n.text("direction", "forward") != "bidirectional" or n.given("activation_alpha"):
        n.freeze(directions)
        return
    n.attr("direction", lambda size: "forward" if size(directions) == 1 else "bidirectional")
    if n.given("activations"):
        names = list(n.node.attributes["activations"].value)
        half = len(names) // 2
        n.attr("activations", lambda size: names[: half * size(directions)])
