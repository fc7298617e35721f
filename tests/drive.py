"""A small driver for tests of passes: the real engine, with a Python predicate for an oracle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.engine import Engine, Question
from onnxreduce.tensors import Array
from onnxreduce.verdict import Verdict

ort.set_default_logger_severity(4)


@dataclass(frozen=True)
class PassStage:
    """A pass as a stage that is always wanted."""

    module: ModuleType

    @property
    def name(self) -> str:
        return str(self.module.NAME)

    @property
    def records(self) -> bool:
        return bool(getattr(self.module, "RECORDS", False))

    def wanted(self, case: Case) -> bool:
        return True

    def edits(self, case: Case) -> Proposals:
        return self.module.edits(case)


@dataclass
class Run:
    """A reduction as the engine sees it: answers by a predicate, and counts."""

    case: Case
    interesting: Callable[[Case], bool]
    calls: int = 0
    invalid: int = 0
    steps: list[str] = field(default_factory=list)
    known: dict[str, Verdict] = field(default_factory=dict)

    def stage(self, name: str) -> None:
        pass

    def ask(self, question: Question) -> Verdict:
        digest = question.case.digest
        if digest not in self.known:
            self.known[digest] = self._judge(question.case)
        return self.known[digest]

    def accepted(self, question: Question, verdict: Verdict) -> None:
        self.steps.append(question.edit)

    def recorded(self, case: Case) -> Case:
        try:
            return case.with_recording(record(case))
        except Exception:
            with contextlib.suppress(Exception):  # it knows other operators
                return case.with_recording(record_by_reference(case))
            return case.with_recording(None)

    def _judge(self, case: Case) -> Verdict:
        if not valid(case):
            self.invalid += 1
            return Verdict.invalid()
        self.calls += 1
        return Verdict.interesting() if self.interesting(case) else Verdict.boring()

    @property
    def ops(self) -> list[str]:
        return [node.op_type for node in self.case.model.graph]

    @property
    def text(self) -> str:
        return onnx.printer.to_text(ir.to_proto(self.case.model))


def drive(case: Case, passes: Sequence[ModuleType], interesting: Callable[[Case], bool]) -> Run:
    """Reduce with some passes: every candidate is smaller, valid, and judged by the predicate."""
    assert interesting(case), "the original must show the bug"
    run = Run(case, interesting)
    engine = Engine(case, run)
    engine.run([PassStage(module) for module in passes])
    run.case = engine.case
    assert interesting(run.case)
    return run


def valid(case: Case) -> bool:
    """Does the checker take the case, and does ONNX Runtime run it without optimisations?"""
    proto = ir.to_proto(case.model)
    try:
        onnx.checker.check_model(proto, full_check=True)
        run_ort(proto, case.inputs)
    except Exception:
        return False
    return True


def run_ort(proto: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, dict(inputs))


class Values(dict[str, Array]):
    """A recording held in memory."""

    made_up = False


def record(case: Case) -> Values:
    """Every value of the main graph, as ONNX Runtime computes it."""
    proto = ir.to_proto(case.model)
    known = {value.name for value in (*proto.graph.input, *proto.graph.output)}
    for node in proto.graph.node:
        for name in node.output:
            if name and name not in known:
                proto.graph.output.append(onnx.ValueInfoProto(name=name))
    names = [value.name for value in proto.graph.output]
    return Values(zip(names, run_ort(proto, case.inputs), strict=True))


def record_by_reference(case: Case) -> Values:
    """Every value of the main graph that the reference implementation computes as a tensor."""
    proto = ir.to_proto(case.model)
    names = [name for node in proto.graph.node for name in node.output if name]
    evaluator = ReferenceEvaluator(proto)
    results = evaluator.run(names, dict(case.inputs))
    pairs = zip(names, results, strict=True)
    return Values({n: np.asarray(a) for n, a in pairs if isinstance(a, np.ndarray | np.generic)})


def case_of(model: onnx.ModelProto | str, seed: int = 0, **inputs: Array) -> Case:
    """A case of a model (or its text); inputs that are not given are random, unknown dims 2."""
    proto = onnx.parser.parse_model(model) if isinstance(model, str) else model
    rng = np.random.default_rng(seed)
    fed: dict[str, Array] = {}
    weights = {w.name for w in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name in inputs:
            fed[value.name] = inputs[value.name]
        elif value.name not in weights:
            kind = value.type.tensor_type
            shape = [d.dim_value if d.HasField("dim_value") else 2 for d in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            fed[value.name] = (rng.standard_normal(shape) * 2).astype(dtype)
    return Case(ir.from_proto(proto), fed)


def planted(*wrong: type[OpRun], atol: float = 1e-3) -> Callable[[Case], bool]:
    """The predicate *an evaluator with these wrong operators disagrees with the right one*.

    An operator class is named after the operator it replaces, as `ReferenceEvaluator` wants it.
    """

    def interesting(case: Case) -> bool:
        proto = ir.to_proto(case.model)
        try:
            expected = ReferenceEvaluator(proto).run(None, dict(case.inputs))
            actual = ReferenceEvaluator(proto, new_ops=list(wrong)).run(None, dict(case.inputs))
        except Exception:
            return False
        return any(
            np.shape(e) != np.shape(a) or not np.allclose(e, a, atol=atol, equal_nan=True)
            for e, a in zip(expected, actual, strict=True)
        )

    return interesting


def has(*ops: str) -> Callable[[Case], bool]:
    """The predicate *every one of these operators is there*, for bugs that need no values."""

    def interesting(case: Case) -> bool:
        found = {node.op_type for node in case.model.graph.all_nodes()}
        return found >= set(ops)

    return interesting
