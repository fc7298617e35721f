from __future__ import annotations

import gc
import itertools

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxreduce import complexity
from onnxreduce.case import Case
from onnxreduce.complexity import array_complexity, number_complexity
from onnxreduce.size import Size, attribute_defaults, measure

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def size_of(body: str, **inputs: np.ndarray) -> Size:
    return measure(ir.from_proto(onnx.parser.parse_model(HEADER + body)), inputs)


def test_counts() -> None:
    size = size_of(
        """g (float[1,2,4,4] x, bool c) => (float[1,3,4,4] y, float[1] z)
        <float[3,2,1,1] w = {1, 1, 0, 0, 0, 0}, int64[1] unused = {0}>
        {
            p = Conv <kernel_shape = [1, 1], group = 1, auto_pad = "NOTSET"> (x, w)
            z = Constant <value = float[1] {0.5}> ()
            y = If (c) <
                then_branch = a () => (float[1,3,4,4] s) { s = Relu(p) },
                else_branch = b () => (float[1,3,4,4] t) { t = Neg(p) }
            >
        }""",
        x=np.zeros((1, 2, 4, 4), np.float32),
        c=np.array(False),
    )
    assert size.nodes == 5
    assert size.ports == 4
    assert size.elements == 32 + 1 + 6 + 1 + 1
    # kernel_shape, value and the two branches; group and auto_pad are at their defaults
    assert size.attributes == 4


def test_functions_count_inside() -> None:
    size = size_of(
        """g (float[2] x) => (float[2] y) { y = local.f (x) }
        <domain: "local", opset_import: ["" : 17]> f (a) => (c) { b = Relu(a)  c = Neg(b) }""",
    )
    assert size.nodes == 3


def test_initializers_that_are_inputs_are_no_ports() -> None:
    plain = size_of("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    old = size_of(
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    )
    assert plain.ports == old.ports == 2
    assert plain.elements == old.elements


def test_open_dims_count_least() -> None:
    static = size_of("g (float[3,4] x) => (float[3,4] y) { y = Relu(x) }")
    dynamic = size_of("g (float[N,long_name] x) => (float[N,?] y) { y = Relu(x) }")
    assert (static.open, dynamic.open) == (0, 4)
    assert static == dynamic._replace(open=0)
    longer = size_of("g (float[3,4] in_put) => (float[3,4] y) { y = Relu(in_put) }")
    assert dynamic < longer


def test_plain_names_are_free() -> None:
    plain = size_of("g (float[2] x) => (float[2] y) { div = Div(x, x)  y = Relu(div) }")
    other = size_of("f (float[2] a) => (float[2] b) { c = Div(a, a)  b = Relu(c) }")
    assert plain.text + 8 == other.text
    # Which name is plain is a matter of roles.
    swapped = size_of("g (float[2] y) => (float[2] x) { div = Div(y, y)  x = Relu(div) }")
    assert plain < swapped


def test_smaller_by_each_criterion() -> None:
    """Each line is smaller than the one before, by one criterion alone."""
    x = np.full((2,), 0.37, np.float32)
    y = "=> (float[2] y)"
    ladder = [
        size_of(f"g (float[2] x) {y} {{ a = Relu(x)  y = Relu(a) }}", x=x),
        size_of("g (float[2] x) => (float[2] y, float[2] x) { y = Elu <alpha = 0.37> (x) }", x=x),
        size_of(f"g (float[2] x) {y} {{ y = Elu <alpha = 0.37> (x) }}", x=np.tile(x, 2)),
        size_of(f"g (float[2] x) {y} {{ y = Elu <alpha = 0.37> (x) }}", x=x),
        size_of(f"g (float[2] x) {y} {{ y = Elu <alpha = 0.5> (x) }}", x=x),
        size_of(f"g (float[2] x) {y} {{ y = Elu <alpha = 1.0> (x) }}", x=x),
        size_of(f"g (float[2] x) {y} {{ y = Elu (x) }}", x=x),
        size_of(f"g (float[2] x) {y} {{ y = Elu (x) }}", x=np.array([0.5, 0.5], np.float32)),
        size_of(f"g (float[2] x) {y} {{ y = Elu (x) }}", x=np.array([1, 1], np.float32)),
        size_of(f"g (float[2] x) {y} {{ y = Elu (x) }}", x=np.array([0, 1], np.float32)),
        size_of(f"g (float[2] x) {y} {{ y = Elu (x) }}", x=np.array([0, 0], np.float32)),
    ]
    for larger, smaller in itertools.pairwise(ladder):
        assert smaller < larger


def test_tidying_counts_as_smaller() -> None:
    body = (
        "main_graph (float[2] x) => (float[2] out) { [node] hidden = Relu(x)  out = Neg(hidden) }"
    )
    model = ir.from_proto(onnx.parser.parse_model(HEADER + body))
    node = model.graph.node(0)
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    node.doc_string = "d"
    model.metadata_props["k"] = "v"
    model.graph.opset_imports["unused"] = 1
    model.producer_name = "producer"
    last = measure(model, {})

    def shrinks() -> bool:
        nonlocal last
        before, last = last, measure(model, {})
        return last < before

    node.outputs[0].type = None
    assert shrinks()
    node.doc_string = None
    assert shrinks()
    model.metadata_props.clear()
    assert shrinks()
    del model.graph.opset_imports["unused"]
    assert shrinks()
    model.producer_name = None
    assert shrinks()
    node.name = ""
    assert shrinks()
    node.outputs[0].name = "h"
    assert shrinks()
    model.graph.name = "g"
    assert shrinks()


def test_types_and_versions_count() -> None:
    float32 = size_of("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    half = size_of("g (float16[2] x) => (float16[2] y) { y = Relu(x) }")
    assert float32.types == 0 < half.types
    assert float32 < half


def test_number_complexity() -> None:
    costs = [number_complexity(n) for n in (0, 1, 7, 42, -42, 2**63 - 1)]
    assert costs == sorted(set(costs))
    floats = [number_complexity(n) for n in (0.0, 1.0, 2.0, 0.5, 0.25, 0.1234567, float("nan"))]
    assert floats[:6] == sorted(set(floats[:6]))
    assert floats[6] > 0
    assert number_complexity(float(np.float32(0.01))) < number_complexity(0.0123)


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int8, np.bool_]),
        hnp.array_shapes(max_dims=2, max_side=6),
    ),
    st.data(),
)
def test_zeroing_an_element_makes_values_smaller(array: np.ndarray, data: st.DataObject) -> None:
    flat = array.reshape(-1).copy()
    index = data.draw(st.integers(0, flat.size - 1))
    zeroed = flat.copy()
    zeroed[index] = 0
    if flat[index] != 0:
        assert array_complexity(zeroed) < array_complexity(flat)
    assert array_complexity(np.zeros_like(flat)) == 0


@given(hnp.arrays(np.float32, 5, elements=st.floats(-1e6, 1e6, width=32)))
def test_rounding_is_simpler_or_equal(array: np.ndarray) -> None:
    rounded = np.array([float(f"{item:.2g}") for item in array.tolist()], np.float32)
    assert array_complexity(rounded) <= array_complexity(array)


def test_arrays_are_not_confused_when_memory_is_reused() -> None:
    for fill in (0, 1, 2, 3):
        array = np.full(100, fill, np.float32)
        cost = array_complexity(array)
        assert cost == 200 * (0, 1, 2, 2)[fill]
        del array
        gc.collect()


def test_a_tensor_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = ir.Tensor(np.random.default_rng(0).standard_normal(4_000, np.float32))
    value = ir.Value(name="w", const_value=weights)
    node = ir.Node("", "Relu", [value], outputs=[ir.Value(name="y")])
    graph = ir.Graph([], node.outputs, nodes=[node], initializers=[value], name="g")
    graph.opset_imports[""] = 17
    case = Case(ir.Model(graph, ir_version=8), {})
    first = case.size
    monkeypatch.setattr(complexity, "_complexity", lambda array: pytest.fail("read again"))
    for _ in range(10):
        assert Case(case.copy_model(), {}).size == first


def test_sampled_complexity_still_sees_zeroing() -> None:
    array = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    half = array.copy()
    half[:50_000] = 0
    assert array_complexity(half) < array_complexity(array)
    one = array.copy()
    one[12_345] = 0
    assert array_complexity(one) < array_complexity(array)


def test_defaults_come_from_the_schema_of_the_version() -> None:
    assert attribute_defaults("Conv", "", 17)["group"] == 1
    assert attribute_defaults("Conv", "", 17)["auto_pad"] == "NOTSET"
    assert attribute_defaults("LSTM", "", 17)["direction"] == "forward"
    assert "kernel_shape" not in attribute_defaults("Conv", "", 17)
    assert attribute_defaults("Softmax", "", 11)["axis"] == 1
    assert attribute_defaults("Softmax", "", 13)["axis"] == -1
    assert attribute_defaults("NoSuchOperator", "nowhere", 1) == {}
