"""What an expert would write by hand: a bug for every way in which numbers, attributes, types and
names get simple, and exactly what is left of each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from drive import case_of, drive, has

from onnxreduce.case import Case
from onnxreduce.passes import attributes, types, values
from onnxreduce.reducer import reduce
from onnxreduce.schedule import SMALL
from onnxreduce.tensors import Array

Bug = Callable[[Any], bool]

ABS = """<ir_version: 8, opset_import: ["": 17]>
g (float[N] x) => (float[N] y) { y = Abs(x) }"""
ROUGH = np.array([0.137, -5.21, 7.3, 2.4, -1.05, 3.33], np.float32)


def distinct(x: Array) -> bool:
    return len(set(x.tolist())) == x.size


NUMBERS: dict[str, tuple[Array, Bug, list[float]]] = {
    "no numbers at all": (ROUGH, lambda x: True, [0] * 6),
    "no zero anywhere": (ROUGH, lambda x: bool((x != 0).all()), [1] * 6),
    "all different": (ROUGH, distinct, [0, 1, 2, 3, 4, 5]),
    "all different, no zero": (
        ROUGH,
        lambda x: bool((x != 0).all()) and distinct(x),
        [1, 2, 3, 4, 5, 6],
    ),
    "in ascending order, positive": (
        np.array([0.137, 5.21, 7.3], np.float32),
        lambda x: bool((np.diff(x) > 0).all() and (x > 0).all()),
        [1, 2, 3],
    ),
    "both signs": (ROUGH, lambda x: x.min() < 0 < x.max(), [0, 0, 0, 0, -1, 1]),
    "all equal, above two": (
        np.full(3, 2.7, np.float32),
        lambda x: bool((x == x[0]).all() and x[0] > 2),
        [3] * 3,
    ),
    "some that are not zero": (ROUGH, lambda x: np.count_nonzero(x) >= 3, [1] * 6),
    "a fraction": (ROUGH, lambda x: bool((x % 1 != 0).any()), [0, 0, 0, 0, 0, 0.1]),
    "NaN beside a large number": (
        np.array([1.1, np.nan, 4.2, 2.1], np.float32),
        lambda x: bool(np.isnan(x).any() and (x > 3).any()),
        [0, np.nan, 0, 4],
    ),
    "both infinities": (
        np.array([1.1, np.inf, -np.inf, np.inf], np.float32),
        lambda x: bool(np.isposinf(x).any() and np.isneginf(x).any()),
        [0, 0, -np.inf, np.inf],
    ),
    "a subnormal number": (
        np.array([3.3, 1.23e-40, 1.5], np.float32),
        lambda x: bool(((x != 0) & (np.abs(x) < 1e-38)).any()),
        [0, 1e-40, 0],
    ),
    "negative zeros that nobody needs": (
        np.array([-0.0, -0.0], np.float32),
        lambda x: True,
        [0, 0],
    ),
    "small integers": (np.array([7, 40, 3], np.int64), lambda x: bool(x[1] >= 5), [0, 5, 0]),
    "a negative index": (np.array([7, -3, 5], np.int64), lambda x: x.min() < 0, [0, -1, 0]),
    "unordered indices": (np.array([7, 3, 5], np.int64), lambda x: bool(x[0] > x[1]), [1, 0, 0]),
    "one large byte of many": (
        np.arange(100, 200, 5).astype(np.uint8),
        lambda x: bool(x.size == 20 and x.max() >= 150),
        [*[0] * 19, 150],
    ),
    "one truth": (np.array([True, False, True, True]), lambda x: bool(x.any()), [0, 0, 0, 1]),
}


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers(name: str) -> None:
    x, bug, wanted = NUMBERS[name]
    kind = onnx.helper.tensor_dtype_to_string(onnx.helper.np_dtype_to_tensor_dtype(x.dtype))
    element = kind.split(".")[-1].lower()
    operator = "Identity" if element in ("bool", "uint8") else "Abs"
    model = ABS.replace("float", element).replace("Abs", operator)
    run = drive(case_of(model, x=x), [values], lambda case: bug(case.inputs["x"]))
    left = run.case.inputs["x"]
    np.testing.assert_array_equal(left, np.array(wanted, x.dtype))
    assert not np.signbit(left[left == 0].astype(np.float64)).any()


def test_an_invertible_matrix_becomes_the_identity() -> None:
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[3,3] x) => (float[3,3] y) { y = MatMul(x, x) }"""

    def invertible(case: Case) -> bool:
        return bool(abs(np.linalg.det(case.inputs["x"])) > 0.1)  # type: ignore[arg-type]

    run = drive(case_of(model), [values], invertible)
    assert run.case.inputs["x"].tolist() == np.eye(3).tolist()  # type: ignore[union-attr]


def attribute(case: Case, name: str) -> Any:
    found = case.model.graph[0].attributes.get(name)
    return None if found is None else found.value


IMAGE = "g (float[1,1,12,12] x) => (float[1,1,N,M] y)"
POOL = (
    "AveragePool<kernel_shape=[5,5],strides=[3,3],pads=[2,2,2,2],ceil_mode=1,count_include_pad=1>"
)
ATTRIBUTES: dict[str, tuple[str, Bug, str]] = {
    "a mode that is needed": (
        """g (float[1,1,4,4] x) => (float[1,1,N,M] y) <float[4] s = {1,1,2,2}> {
        y = Resize<mode="cubic", cubic_coeff_a=-0.5, nearest_mode="floor",
        coordinate_transformation_mode="align_corners">(x,,s) }""",
        lambda case: attribute(case, "mode") == "cubic",
        'Resize <mode: string = "cubic"> (x, "", s)',
    ),
    "an axis": (
        "g (float[2,3,4,5] x) => (float[2,3,4,5] y) { y = Softmax<axis=2>(x) }",
        lambda case: attribute(case, "axis") in (1, 2),
        "Softmax <axis: int = 1> (x)",
    ),
    "a negative axis": (
        "g (float[2,3,4,5] x) => (float[2,3,4,5] y) { y = Softmax<axis=-2>(x) }",
        lambda case: attribute(case, "axis") in (-2, 2),
        "Softmax <axis: int = 2> (x)",
    ),
    "axes, of which one does": (
        """g (float[3,4,5,6] x) => (float[N,M] y) {
        y = ReduceMean<axes=[-1,-2],keepdims=0>(x) }""",
        lambda case: attribute(case, "axes") is not None,
        "ReduceMean <axes: ints = [0]> (x)",
    ),
    "a rank that changes": (
        "g (float[3,4,5] x) => (float[N,M] y) { y = ReduceMean<axes=[-1],keepdims=0>(x) }",
        lambda case: attribute(case, "keepdims") == 0,
        "ReduceMean <keepdims: int = 0> (x)",
    ),
    "an epsilon": (
        """g (float[2,3,4] x, float[3] s, float[3] b) => (float[2,3,4] y) {
        y = InstanceNormalization<epsilon=0.00123>(x,s,b) }""",
        lambda case: (attribute(case, "epsilon") or 0) > 5e-4,
        "InstanceNormalization <epsilon: float = 1> (x, s, b)",
    ),
    "a small epsilon": (
        """g (float[2,3,4] x, float[3] s, float[3] b) => (float[2,3,4] y) {
        y = InstanceNormalization<epsilon=0.00123>(x,s,b) }""",
        lambda case: 5e-4 < (attribute(case, "epsilon") or 0) < 2e-3,
        "InstanceNormalization <epsilon: float = 0.001> (x, s, b)",
    ),
    "a factor that is not one": (
        """g (float[3,4] x, float[4,5] w) => (float[3,5] y) {
        y = Gemm<alpha=0.37,beta=1.73>(x,w) }""",
        lambda case: attribute(case, "alpha") not in (None, 0.0, 1.0),
        "Gemm <alpha: float = 2> (x, w)",
    ),
    "strides with rounding up": (
        f"{IMAGE} {{ y = {POOL}(x) }}",
        lambda case: attribute(case, "ceil_mode") == 1 and attribute(case, "strides") is not None,
        "AveragePool <kernel_shape: ints = [1, 1], strides: ints = [1, 1], ceil_mode: int = 1> (x)",
    ),
    "pads and the kernel that they need": (
        f"{IMAGE} {{ y = {POOL}(x) }}",
        lambda case: any(attribute(case, "pads") or []),
        "AveragePool <kernel_shape: ints = [1, 2], pads: ints = [0, 0, 0, 1]> (x)",
    ),
    "one dilation": (
        """g (float[1,1,15,15] x, float[1,1,3,3] w) => (float[1,1,N,M] y) {
        y = Conv<kernel_shape=[3,3],dilations=[4,3],strides=[2,2],pads=[1,2,3,4]>(x,w) }""",
        lambda case: max(attribute(case, "dilations") or [1]) > 1,
        "Conv <dilations: ints = [1, 2]> (x, w)",
    ),
}


def body(case: Case) -> str:
    """The only node, in the text form."""
    text = onnx.printer.to_text(ir.to_proto(case.model))
    return next(line for line in text.splitlines() if "y = " in line).split("y = ")[1]


@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_attributes(name: str) -> None:
    graph, bug, wanted = ATTRIBUTES[name]
    case = case_of(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    run = drive(case, [attributes], bug)
    assert body(run.case) == wanted


def small_passes() -> list[Any]:
    return [import_module(f"onnxreduce.passes.{name}") for name in SMALL]


def test_two_directions_become_one_with_all_that_they_describe() -> None:
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float[5,2,6] x, float[2,16,6] w, float[2,16,4] r, float[2,32] b) => (float[5,2,2,4] y) {
      y = LSTM<hidden_size=4, direction="bidirectional", clip=3.0, input_forget=1,
        activations=["Sigmoid","Tanh","Tanh","Sigmoid","Tanh","Tanh"]>(x, w, r, b)
    }"""
    run = drive(case_of(model), small_passes(), lambda case: attribute(case, "clip") is not None)
    assert set(run.case.model.graph[0].attributes) == {"hidden_size", "clip"}
    assert run.case.size.elements == 5  # one for the input, four gates that are both weights


@pytest.mark.parametrize(
    ("version", "low", "high", "left"),
    [(25, 23, 99, 23), (26, 0, 99, 17), (9, 0, 11, 11), (21, 20, 99, 20)],
)
def test_the_nearest_version_that_shows_the_bug(
    version: int, low: int, high: int, left: int
) -> None:
    model = f'<ir_version: 8, opset_import: ["": {version}]> g (float[2] x) => (float[2] y)'

    def opset(case: Case) -> int:
        return case.model.graph.opset_imports[""]

    run = drive(case_of(model + " { y = Abs(x) }"), [types], lambda c: low <= opset(c) <= high)
    assert opset(run.case) == left
    assert run.calls <= 10


def test_a_version_that_has_the_operator() -> None:
    model = (
        '<ir_version: 10, opset_import: ["": 24]> g (float[2] x) => (float[2] y) { y = Gelu(x) }'
    )
    run = drive(case_of(model), [types], has("Gelu"))
    assert run.case.model.graph.opset_imports[""] == 20


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_a_rare_type_that_the_bug_needs_stays_with_its_special_value(dtype: type) -> None:
    element = {np.float16: "float16", np.float64: "double"}[dtype]
    model = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({element}[3] x) => (float[3] y) {{ y = Cast<to=1>(x) }}"""

    def bug(case: Case) -> bool:
        x = case.inputs["x"]
        return bool(x.dtype == dtype and np.isnan(x).any())  # type: ignore[arg-type, union-attr]

    run = drive(case_of(model, x=np.array([1.5, np.nan, 2.25], dtype)), small_passes(), bug)
    x = run.case.inputs["x"]
    assert isinstance(x, np.ndarray)
    assert (x.dtype, x.shape) == (dtype, (1,))


def test_a_type_that_numpy_does_not_know(tmp_path: Path) -> None:
    model = """<ir_version: 10, opset_import: ["": 21]>
    g (bfloat16[3] x) => (float[3] y) { y = Cast<to=1>(x) }"""

    def bug(case: Any) -> bool:
        (x,) = case.inputs.values()
        return bool(x.dtype == ml_dtypes.bfloat16 and np.isnan(x.astype(np.float32)).any())

    x = np.array([1.5, np.nan, 2.25], ml_dtypes.bfloat16)
    reduce(case_of(model, x=x), bug, output=tmp_path / "out")
    (value,) = onnx.load(tmp_path / "out" / "model.onnx").graph.input
    kind = value.type.tensor_type
    assert kind.elem_type == onnx.TensorProto.BFLOAT16
    assert [dim.dim_value for dim in kind.shape.dim] == [1]


NAMED = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,3] x) => (float[2,3] y) {
  [first] a = Relu(x) [layer3_conv] b = Neg(a) [third] d = Abs(b) e = Sigmoid(d) [last] y = Tanh(e)
}"""


def named(model: onnx.ModelProto) -> dict[str, str]:
    return {node.name: node.op_type for node in model.graph.node}


NAMES: dict[str, tuple[Bug, dict[str, str]]] = {
    "of two nodes apart": (
        lambda case: {"layer3_conv", "last"} <= set(named(case.model)),
        {"layer3_conv": "Neg", "last": "Tanh"},
    ),
    "none at all": (lambda case: "" in named(case.model), {"": "Sigmoid"}),
    "of a value": (
        lambda case: any("d" in node.output for node in case.model.graph.node),
        {"abs": "Abs"},
    ),
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_names_that_the_bug_needs(name: str, tmp_path: Path) -> None:
    """No edit may lose one, neither a cut nor the tidying at the end."""
    bug, wanted = NAMES[name]
    reduce(case_of(NAMED), bug, output=tmp_path / "out")
    assert named(onnx.load(tmp_path / "out" / "model.onnx")) == wanted
