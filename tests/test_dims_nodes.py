"""The node cases of the onnx package: every plan is valid, and every operator that computes
floats from floats shrinks, or has its reason here."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from drive import case_of, record
from networks import Net
from node_cases import node_cases as collected
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from test_dims import assert_valid, outputs, recorded

from onnxreduce.case import Case
from onnxreduce.dims import analyse, rules
from onnxreduce.dims.analysis import Analysis
from onnxreduce.dims.emit import emit
from onnxreduce.dims.rules.frozen import REASONS
from onnxreduce.edits import Conflict
from onnxreduce.passes._recipes import is_float
from onnxreduce.tensors import Array

Run = Callable[[Case], dict[str, Array]]

STUCK = {
    **REASONS,
    "test_affine_grid_3d_expanded": "the branch for two dims, never taken, needs a batch of two",
    "test_affine_grid_3d_align_corners_expanded": "likewise",
    "test_scan_sum": "before opset 9 a Scan takes a batch, each sequence with its own length",
}
"""Operators, and single cases, that do not shrink, and why. There is no other table."""


@cache
def node_cases() -> list[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    found = []
    for test in collected():
        names = [value.name for value in test.model.graph.input]
        fed = {
            name: numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
            for name, value in zip(names, test.data_sets[0][0], strict=False)
        }
        if all(isinstance(array, np.ndarray | np.generic) for array in fed.values()):
            arrays = {name: np.asarray(array) for name, array in fed.items()}
            found.append((test.name, test.model, arrays))
    return found


def referred(case: Case) -> dict[str, Array]:
    """Outputs as onnx's own implementation computes them."""
    proto = ir.to_proto(case.model)
    assert isinstance(proto, onnx.ModelProto)
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(proto).run(None, dict(case.inputs))
    return dict(zip([value.name for value in proto.graph.output], results, strict=True))


def runnable(part: int = 0, of: int = 1) -> Iterator[tuple[str, Case, Run]]:
    """The cases that ONNX Runtime runs, else the reference; some of them by a hash of the name."""
    for name, model, arrays in node_cases():
        if zlib.crc32(name.encode()) % of != part:
            continue
        case = Case(ir.from_proto(model), arrays)
        try:
            yield name, recorded(case), outputs
            continue
        except Exception:  # not implemented there, or an output that is no tensor
            pass
        try:
            yield name, case.with_recording(record(case)), referred
        except Exception:
            continue  # nor here


def floating(arrays: Iterable[object]) -> bool:
    """Is there a float tensor that could be smaller?"""
    return any(isinstance(a, np.ndarray) and is_float(a) and a.size > 1 for a in arrays)


def shrinks(case: Case, analysis: Analysis, run: Run) -> bool:
    """Is there a class that alone can be smaller, and does the case run so?"""
    before = analysis.elements(analysis.plan({}))
    sizes = [(s, size) for s, c in analysis.classes.items() for size in range(c.least, s.size)]
    for symbol, size in sizes:
        try:
            plan = analysis.plan({symbol: size})
            candidate = emit(analysis, plan)
        except Conflict:
            continue
        if analysis.elements(plan) < before:
            run(candidate)
            return True
    return False


def check(part: int, of: int) -> tuple[int, dict[str, set[str]]]:
    """Fuzz the cases; gives how many there were, and which are stuck, with their operators."""
    count, stuck = 0, {}
    for name, case, run in runnable(part, of):
        if any(out.type is None or out.dtype is None for out in case.model.graph.outputs):
            continue
        analysis = analyse(case)
        assert_valid(case, analysis, 3, seed=len(name), run=run)
        count += 1
        made = run(case).values()
        if floating(case.inputs.values()) and floating(made) and not shrinks(case, analysis, run):
            stuck[name] = {node.op_type for node in case.model.graph}
    return count, stuck


def unexplained(stuck: dict[str, set[str]]) -> list[str]:
    return [name for name, op_types in stuck.items() if not {name, *op_types} & set(STUCK)]


def test_a_sample_of_the_node_cases() -> None:
    count, stuck = check(3, 16)
    assert count > 80
    assert not unexplained(stuck)


@pytest.mark.slow
def test_all_node_cases() -> None:
    count, stuck = check(0, 1)
    assert count > 1500
    assert not unexplained(stuck)
    assert set(STUCK) - set(REASONS) <= set(stuck)


def test_rules_name_operators_that_exist() -> None:
    """A misspelt operator would never be found."""
    known = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    own = {("", "SimplifiedLayerNormalization")}  # ONNX Runtime's, in the default domain
    assert not {
        op_type
        for domain, op_type in rules.known()
        if domain in ("", "ai.onnx.ml") and (domain, op_type) not in known | own
    }


def test_every_float_operator_has_a_rule_or_a_reason() -> None:
    """What is neither ruled nor listed is left to probing: name it here, so that it is known."""
    probed = {"CenterCropPad"}
    sequences = {
        *("Optional", "OptionalGetElement", "SequenceAt", "SequenceConstruct", "SequenceErase"),
        *("SequenceInsert", "ConcatFromSequence"),
    }
    missing = set()
    for schema in onnx.defs.get_all_schemas():
        if schema.domain != "" or schema.deprecated:
            continue
        sides = (schema.inputs, schema.outputs)
        floating = all(side and any("tensor(float)" in s for s in side[0].types) for side in sides)
        listed = schema.name in {*probed, *sequences, *STUCK}
        if floating and not listed and rules.find("", schema.name) is None:
            missing.add(schema.name)
    assert not missing


def stored(op_type: str, x: Array, *operands: Array, opset: int = 17, **attributes: object) -> Case:
    """One node that reads an input and stored operands."""
    net = Net()
    x_name = net.input("x", x)
    names = [net.const(array, array.dtype.type) for array in operands]
    return net.case(net.op(op_type, x_name, *names, **attributes), opset=opset)


def test_a_stored_condition_cuts_an_axis_into_runs() -> None:
    """What goes and what stays are classes of their own."""
    condition = np.array([True, True, False, False, False, True])
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    case = recorded(stored("Compress", x, condition, axis=1))
    analysis = analyse(case)
    sizes = sorted(symbol.size for symbol in analysis.classes)
    assert sizes == [1, 2, 2, 3]
    (gone,) = [symbol for symbol in analysis.classes if symbol.size == 3]
    small = emit(analysis, analysis.plan({gone: 0}))
    (result,) = outputs(small).values()
    assert result.tolist() == [[0, 1, 5], [6, 7, 11]]
    assert small.inputs["x"].shape == (2, 3)  # type: ignore[union-attr]


NON_ZERO = """<ir_version: 8, opset_import: ["": 17]>
g (float[3,4] x) => (int64[2,n] y) { y = NonZero(x) }"""


def test_what_depends_on_values_may_change_where_no_node_reads_it() -> None:
    x = np.ones((3, 4), np.float32)
    last = recorded(case_of(NON_ZERO, x=x))
    analysis = analyse(last)
    plan = analysis.plan(dict.fromkeys(analysis.classes, 1))
    small = emit(analysis, plan)
    assert small.inputs["x"].shape == (1, 1)  # type: ignore[union-attr]
    assert outputs(small)["y"].tolist() == [[0], [0]]
    read = NON_ZERO.replace("y = NonZero(x)", "z = NonZero(x) y = Abs(z)")
    assert not analyse(recorded(case_of(read, x=x))).classes


def test_columns_become_a_smaller_image() -> None:
    """All of the operands of Col2Im follow at once."""
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((2, 3 * 6, 4 * 5)).astype(np.float32)
    case = recorded(stored("Col2Im", columns, np.array([6, 6]), np.array([3, 2]), opset=18))
    analysis = analyse(case)
    plan = analysis.plan({}, dict.fromkeys(analysis.classes, 1))
    small = emit(analysis, plan)
    assert small.inputs["x"].shape == (1, 1, 1)  # type: ignore[union-attr]
    assert [array.shape for array in outputs(small).values()] == [(1, 1, 1, 1)]
