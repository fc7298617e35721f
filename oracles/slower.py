"""One backend is slower than another by more than a ratio.

    onnxreduce model.onnx --oracle slower --set slow=web:webgpu --set fast=web:wasm --set ratio=3
    onnxreduce model.onnx --oracle slower --set slow=ort@1.20.1 --set fast=ort@1.19.2

Never a single timing: the two sides take turns, each turn is the median of a few runs in a warm
session, and of `pairs` turns all but one must show the ratio (a sign test: if the true median
ratio were just below, 1 of 93 candidates would pass by luck; with a clear distance, none). A
disturbance of the machine hits both sides of a turn alike. The slow side must also stay slow,
`least` seconds (a tenth of what the original takes, when it is not given) in all turns but one:
next to nothing, everything is slow. Choose a ratio well below that of the original, so that it is
not a matter of luck.

A reducer goes as near to the limits as it is let, and there the answer would be luck again. So
both limits are a quarter higher while it works, and as they were given for the first questions to
a process: those about the original, and the one about the result.
"""

import itertools
import statistics

from onnxreduce import Verdict
from onnxreduce.backends import close_backends, warm_backend

JOBS = 1
"""A neighbour would spoil the timing."""

MARGIN = 1.25
FIRST = 2
asked = itertools.count()

LEAST = 0.002
"""Seconds below which a difference is dispatch and no work, where nothing better is known."""


def interesting(case, *, slow: str, fast: str, ratio=2.0, pairs=10, runs=3, least=0.0):
    """One backend is slower than another by more than a ratio.

    slow, fast: the two sides; ratio: how much slower; pairs: turns; runs: in one turn;
    least: seconds that the slow side must take.
    """
    margin = MARGIN if next(asked) >= FIRST else 1.0
    turns = []
    for _ in range(pairs):
        turns.append(turn(case, slow, fast, runs))
        if sum(pair[0] < ratio * margin * pair[1] for pair in turns) > 1:
            return Verdict.boring(f"not {ratio * margin:g} times slower: {describe(turns)}")
        if sum(pair[0] < (least or LEAST) * margin for pair in turns) > 1:
            return Verdict.boring(f"too quick to matter: {describe(turns)}; least= sets the limit")
    return Verdict.interesting(describe(turns), "slower")


def turn(case, slow, fast, runs):
    """Median seconds of both sides, one after the other; a backend that fails raises."""
    path = str(case.model_path)
    return tuple(
        statistics.median(warm_backend(side).run_timed(path, case.inputs, runs))
        for side in (slow, fast)
    )


def describe(turns):
    """The figures in words."""
    slow, fast = (statistics.median(side) for side in zip(*turns, strict=True))
    each = sorted(slow / fast for slow, fast in turns)
    return (
        f"{slow * 1e3:.3g} ms against {fast * 1e3:.3g} ms, {slow / fast:.3g} times "
        f"(from {each[0]:.3g} to {each[-1]:.3g} in {len(turns)} turns)"
    )


def hold(case, *, slow, fast, runs=3, least=0.0, **others):
    """Parameters that are measured once, on the original."""
    return {"least": least or turn(case, slow, fast, runs)[0] / 10}


def identity(*, slow="", fast="", **others):
    """The versions that a verdict depends on."""
    return "; ".join(warm_backend(spec).version() for spec in (slow, fast) if spec)


def teardown():
    close_backends()
