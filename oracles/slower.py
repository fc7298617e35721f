"""One backend is slower than another by more than a ratio.

    onnxreduce model.onnx --oracle slower --set slow=web:webgpu --set fast=web:wasm --set ratio=3
    onnxreduce model.onnx --oracle slower --set slow=ort@1.20.1 --set fast=ort@1.19.2

Never a single timing: the two sides take turns, each turn is the median of some runs in a warm
session, and turns are taken until the case is clear. Each that shows the ratio speaks for it, each
that does not speaks against it twice as loud: Wald's sequential probability ratio test (1945) of
whether four turns of five show it, against an even chance, with an error of 1 in 100. A burst of
other work on the machine that spoils a turn costs a few more turns, not the answer. Where the first
three turns are twice what is asked, or less than half, they are enough. The slow side must also
stay slow, `least` seconds (a tenth of what the original takes, when it is not given): next to
nothing, everything is slow. Choose a ratio well below that of the original, so that it is not a
matter of luck.

A reducer goes as near to the limits as it is let, and there the answer would be luck again: yes to
one candidate, no to the next that does the same work on other numbers. So what does new work must
keep a distance from both limits, and is judged once; the same work on other floats is held to the
limits as they were given (numbers do matter where some are subnormal), as are the first questions
to a process: those about the original, and the one about the result.
"""

import collections
import hashlib
import itertools
import math
import statistics

import numpy as np
import onnx

from onnxreduce import Verdict
from onnxreduce.backends import close_backends, warm_backend

JOBS = 1
"""A neighbour would spoil the timing."""

MARGINS = 1.25, 1.5
"""What new work must exceed the ratio and the seconds by."""
CLEAR = 3, 2.0
"""So many turns are enough if all are so many times what is asked."""
SHOWN, MISSED = math.log(0.8 / 0.5), math.log(0.2 / 0.5)
"""What a turn says for and against: how much likelier it is if four of five show the ratio."""
SURE = math.log(0.99 / 0.01)
"""So much must have been said for a yes, or against for a no."""
TURN, MANY = 0.005, 50
"""Seconds that a side should work in a turn, and how many runs are enough of it."""
LEAST = 0.002
"""Seconds below which a difference is dispatch and no work, where nothing better is known."""
FIRST = 2
FLOATS = {
    onnx.TensorProto.DataType.Value(name) for name in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
}

asked = itertools.count()
known = {}
"""Work that this process has judged: whether it was slower."""


def interesting(case, *, slow: str, fast: str, ratio=2.0, pairs=40, runs=3, least=0.0):
    """One backend is slower than another by more than a ratio.

    slow, fast: the two sides; ratio: how much slower; pairs: turns at most; runs: in one turn at
    least; least: seconds that the slow side must take.
    """
    key = work(case), slow, fast, ratio, least
    new = next(asked) >= FIRST and not known.get(key)
    if new and key in known:
        return Verdict.boring("the same work on other numbers was not slower")
    ratio_margin, least_margin = MARGINS if new else (1.0, 1.0)
    verdict = measured(
        itertools.islice(turns(case, slow, fast, runs), pairs),
        ratio * ratio_margin,
        (least or LEAST) * least_margin,
    )
    known[key] = known.get(key, False) or bool(verdict)
    return verdict


def measured(pairs, ratio, least):
    """What the turns say, of which no more are made than are needed."""
    taken, said = [], 0.0
    enough, clear = CLEAR
    for slow, fast in pairs:
        taken.append((slow, fast))
        times = [slow / max(ratio * fast, least) for slow, fast in taken]
        said += SHOWN if times[-1] >= 1 else MISSED
        many = len(taken) >= enough
        if said >= SURE or (many and min(times) > clear):
            return Verdict.interesting(describe(taken), "slower")
        if said <= -SURE or (many and max(times) < 1 / clear):
            break
    if statistics.median(slow for slow, _ in taken) < least:
        return Verdict.boring(f"too quick to matter: {describe(taken)}; least= sets the limit")
    return Verdict.boring(f"not {ratio:g} times slower: {describe(taken)}")


def work(case):
    """What a run has to do: a digest of all but the names, and the floats that it is done with."""
    graph = onnx.load(str(case.model_path), load_external_data=False).graph
    number = itertools.count()
    places = collections.defaultdict(lambda: next(number))
    digest = hashlib.sha256()
    for value in graph.input:
        digest.update(repr((places[value.name], value.type.SerializeToString())).encode())
    for tensor in graph.initializer:
        digest.update(repr((places[tensor.name], *without_floats(tensor))).encode())
    for node in graph.node:
        attributes = [
            without_floats(attribute.t)
            if attribute.HasField("t")
            else attribute.SerializeToString()
            for attribute in node.attribute
        ]
        ends = [[places[name] for name in names] for names in (node.input, node.output)]
        digest.update(repr((node.domain, node.op_type, ends, attributes)).encode())
    for name, value in case.inputs.items():
        array = np.asarray(value, dtype=None if hasattr(value, "dtype") else object)
        floats = array.dtype.kind in "fV"
        told = b"" if floats else array.tobytes() if array.dtype != object else repr(value).encode()
        digest.update(repr((places[name], str(array.dtype), array.shape, told)).encode())
    return digest.hexdigest()


def without_floats(tensor):
    """Type and dims, and the values where they are integers or strings."""
    if tensor.data_type in FLOATS:
        return tensor.data_type, *tensor.dims
    tensor.ClearField("name")
    return (tensor.SerializeToString(),)


def turns(case, slow, fast, runs):
    """Median seconds of both sides, taken one after the other; a backend that fails raises.

    Short runs are repeated more often from the second turn on.
    """
    path = str(case.model_path)
    counts = [runs, runs]
    while True:
        seconds = [
            statistics.median(warm_backend(side).run_timed(path, case.inputs, count))
            for side, count in zip((slow, fast), counts, strict=True)
        ]
        counts = [max(runs, min(MANY, math.ceil(TURN / max(each, 1e-6)))) for each in seconds]
        yield tuple(seconds)


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
    first, _ = CLEAR
    taken = itertools.islice(turns(case, slow, fast, runs), first)
    return {"least": least or statistics.median(slow for slow, _ in taken) / 10}


def identity(*, slow="", fast="", **others):
    """The versions that a verdict depends on."""
    return "; ".join(warm_backend(spec).version() for spec in (slow, fast) if spec)


def teardown():
    close_backends()
