"""What shrinking axes leaves of whole networks, and what it costs.

    python benchmarks/dims.py                     every row
    python benchmarks/dims.py resnet50 speech     only these networks

First a bug that depends on no size, then bugs planted on sizes (more than 64 channels, more than
1024 flattened elements, an odd width, ...), with the dims pass alone. Printed: elements of inputs
and weights before and after, questions, candidates that did not run, the size that the bug counts,
seconds of processor time to read all weights of the original once, and milliseconds a question
outside the oracle: proposing, planning, making and measuring candidates, without the check of
candidates and without recording values.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from fat_models import LIGHT, fatten

from onnxreduce.case import Case
from onnxreduce.dims import Change, Resize
from onnxreduce.edits import Conflict
from onnxreduce.engine import Engine, Question
from onnxreduce.passes import dims
from onnxreduce.schedule import stage
from onnxreduce.verdict import Verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from drive import record, run_ort
from networks import NETWORKS

Count = Callable[[Case], int]
"""What a bug counts in a case."""


def shapes(case: Case, op_type: str, at: int = 1) -> Iterator[tuple[int, ...]]:
    """Shapes of the stored operands `at` of the nodes of a type."""
    for node in case.model.graph:
        value = node.inputs[at] if node.op_type == op_type and len(node.inputs) > at else None
        if value is not None and value.const_value is not None:
            yield tuple(value.const_value.shape.numpy())


def weight(op_type: str, axis: int, at: int = 1) -> Count:
    """The largest size of one axis of the weights of an operator."""
    return lambda case: max((shape[axis] for shape in shapes(case, op_type, at)), default=0)


def fed(axis: int) -> Count:
    def size(case: Case) -> int:
        (array,) = case.inputs.values()
        assert isinstance(array, np.ndarray)
        return array.shape[axis]

    return size


def attribute(op_type: str, name: str) -> Count:
    """The largest number that an attribute holds anywhere."""
    return lambda case: max(
        node.attributes.get_int(name, 1) for node in case.model.graph if node.op_type == op_type
    )


def value(name: str, axis: int) -> Count:
    """The size of an axis of a value inside the model."""
    return lambda case: recorded(case).recording.get(name).shape[axis]  # type: ignore[union-attr]


@dataclass(frozen=True)
class Row:
    """A planted bug: what it counts and from where on; `odd`: only odd sizes show it; `batch`: of
    the original; `uneven`: multiples of this do not show it."""

    network: str
    bug: str = "any size"
    count: Count | None = None
    least: int = 1
    odd: bool = False
    batch: int = 1
    uneven: int = 0

    def shows(self, case: Case) -> bool:
        if self.count is None:
            return True
        size = self.count(case)
        even = (self.odd and size % 2 == 0) or (self.uneven and size % self.uneven == 0)
        return size >= self.least and not even


QUERIES = "v10"
"""The queries of `networks.attention`, with an axis for heads."""

NAMES = ("resnet50", "densenet121", "inception_v1", "shufflenet", "squeezenet")

ROWS = (
    *(Row(name) for name in (*NAMES, *NETWORKS)),
    *(Row(name, "channels", weight("Conv", 0), 65) for name in NAMES),
    Row("resnet50", "flattened", weight("Gemm", 1), 1025),
    Row("bvlc_alexnet", "flattened", weight("Gemm", 1), 1025),
    *(Row(name, "odd width", fed(3), 7, odd=True) for name in ("squeezenet",)),
    *(Row(name, "batch", fed(0), 2, batch=2) for name in ("squeezenet",)),
    Row("squeezenet", "batch % 4", fed(0), 5, batch=6, uneven=4),
    *(Row(name, "groups", attribute("Conv", "group"), 3) for name in ("shufflenet", "shuffler")),
    Row("inception_v1", "kernel", weight("Conv", 3), 5),
    Row("speech", "steps", value("v4", 0), 17),
    Row("attention", "head size", value(QUERIES, 3), 3),
)


@dataclass
class Clerk:
    """Answers by the planted bug, and keeps time."""

    row: Row
    calls: int = 0
    invalid: int = 0
    spent: float = 0.0
    known: dict[str, Verdict] = field(default_factory=dict)

    def stage(self, name: str) -> None:
        pass

    def broken(self, stage: str, error: Exception) -> None:
        raise error

    def accepted(self, question: Question, verdict: Verdict) -> None:
        pass

    def ask(self, question: Question) -> Verdict:
        digest = question.case.digest
        began = time.thread_time()
        if digest not in self.known:
            self.known[digest] = self._judge(question.case)
        self.spent += time.thread_time() - began
        return self.known[digest]

    def _judge(self, case: Case) -> Verdict:
        try:
            run_ort(ir.to_proto(case.model), case.inputs)
        except Exception:
            self.invalid += 1
            return Verdict.invalid()
        self.calls += 1
        return Verdict.interesting() if self.row.shows(case) else Verdict.boring()

    def recorded(self, case: Case) -> Case:
        began = time.thread_time()
        try:
            return recorded(case)
        finally:
            self.spent += time.thread_time() - began


def recorded(case: Case) -> Case:
    """With every value of the main graph."""
    return case.with_recording(record(case))


def original(row: Row) -> Case:
    case = NETWORKS[row.network]() if row.network in NETWORKS else light(row.network)
    if row.odd:
        return narrower(case)
    if row.batch == 1:
        return case
    model = case.copy_model()
    (name,) = case.inputs
    array = np.concatenate([np.asarray(case.inputs[name])] * row.batch)
    for declared in (*model.graph.inputs, *model.graph.outputs):
        declared.shape = ir.Shape([row.batch, *list(declared.shape or ())[1:]])
    return Case(model, {name: array})


def narrower(case: Case) -> Case:
    """With the next odd width that the network allows."""
    case, (name,) = recorded(case), case.inputs
    width = np.shape(case.inputs[name])[3]
    for odd in range(width - 1 - width % 2, 0, -2):
        try:
            return Resize((Change(("axis", name, 3, 0), odd),)).apply(case)
        except Conflict:
            continue
    raise ValueError(f"no odd width below {width}")


def light(name: str) -> Case:
    """A light network of the onnx package with random weights."""
    model = fatten(onnx.load(LIGHT / f"light_{name}.onnx"))
    (value,) = model.graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    array = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return Case(ir.from_proto(model), {value.name: array})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--bug", help="only this one")
    options = parser.parse_args()
    print(
        f"{'network':17} {'nodes':>5} {'bug':10} {'from':>5} {'left':>5} {'elements':>11} "
        f"{'left':>6} {'calls':>5} {'invalid':>7} {'s':>6} {'reading s':>9} {'ms a call':>9}"
    )
    for row in ROWS:
        wanted = not options.networks or row.network in options.networks
        if wanted and options.bug in (None, row.bug):
            measure(row)


def measure(row: Row) -> None:
    case = original(row)
    if not row.shows(case):
        raise SystemExit(f"{row.network} does not show the bug ({row.bug})")
    reading = time.thread_time()
    before = case.size.elements
    assert case.digest
    reading = time.thread_time() - reading
    clerk = Clerk(row)
    engine = Engine(case, clerk)
    began, spent = time.perf_counter(), time.thread_time()
    engine.run([stage(dims.NAME)])
    seconds, spent = time.perf_counter() - began, time.thread_time() - spent
    asked = max(1, clerk.calls + clerk.invalid)
    print(
        f"{row.network:17} {case.size.nodes:>5} {row.bug:10} {row.least:>5} "
        f"{row.count(engine.case) if row.count else '-':>5} {before:>11,} "
        f"{engine.case.size.elements:>6,} {clerk.calls:>5} {clerk.invalid:>7} {seconds:6.1f} "
        f"{reading:9.2f} {1000 * (spent - clerk.spent) / asked:9.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
