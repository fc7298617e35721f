"""LSTM, GRU and RNN: gates are stacked on the hidden axis."""

from __future__ import annotations

from onnxreduce.dims.expr import product
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site


@rule("LSTM", "GRU", "RNN")
def recurrent(n: Site) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[n.op_type]
    x, w, r = n.ax(0), n.ax(1), n.ax(2)
    batch_first = n.number("layout") == 1
    batch, time = (x[0], x[1]) if batch_first else (x[1], x[0])
    directions, hidden = w[0], r[2]
    n.freeze(directions)
    n.unify(w[2], x[2])
    n.match(r[:1], w[:1])
    n.unify(w[1], product((n.rigid(gates), hidden)))
    n.unify(r[1], product((n.rigid(gates), hidden)))
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
