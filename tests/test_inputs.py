from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from node_cases import node_cases

from onnxreduce.case import InputValue, declared_inputs
from onnxreduce.errors import UsageError
from onnxreduce.inputs import (
    bind_dims,
    check_inputs,
    find_inputs,
    load_inputs,
    make_inputs,
    save_npz,
    save_test_data_set,
)
from onnxreduce.modelread import load_model
from onnxreduce.npz import read_npz
from tests.roundtrip import equal

SIGNATURE = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[batch,3,H,W] image, int64[batch,H] ids, bool flag, string[2] words, bfloat16[H] half,
   int4[W] packed, seq(float[H]) parts, optional(float[H]) maybe, float[2] w)
  => (float[batch,3,H,W] y)
<float[2] w = {1, 2}> { y = Relu(image) }
"""


def model_of(text: str = SIGNATURE) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(text))


def simple(declared: str = "float[N,3] x") -> ir.Model:
    return model_of(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({declared}) => (float[N] y) {{ y = Relu(x) }}'
    )


def test_made_inputs_fit_the_signature() -> None:
    model = model_of()
    made = make_inputs(model, dims={"W": 4})
    check_inputs(model, made)
    assert list(made) == [value.name for value in declared_inputs(model)]
    assert "w" not in made
    image, ids = made["image"], made["ids"]
    assert isinstance(image, np.ndarray)
    assert isinstance(ids, np.ndarray)
    assert image.shape == (1, 3, 8, 4)
    assert image.dtype == np.float32
    assert ids.shape == (1, 8)
    assert 0 <= ids.min() <= ids.max() <= 3
    assert isinstance(made["parts"], list)
    assert bind_dims(model, {"W": 4}) == {"batch": 1, "H": 8, "W": 4}


def test_negative_dims_are_unknown() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[7,3] x) => (float[7,3] y) {y = Relu(x)}'
    )
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    model = ir.from_proto(proto)
    (made,) = make_inputs(model).values()
    assert isinstance(made, np.ndarray)
    assert made.shape == (1, 3)
    check_inputs(model, {"x": np.zeros((2, 3), np.float32)})
    with pytest.raises(UsageError, match=re.escape("declared float32[?,3], given float32[2,4]")):
        check_inputs(model, {"x": np.zeros((2, 4), np.float32)})


def test_made_inputs_follow_the_seed_and_the_name_alone() -> None:
    both = simple("float[N,3] x, float[N,3] z")
    made = make_inputs(both, seed=1)
    assert equal(make_inputs(both, seed=1)["x"], made["x"])
    assert not equal(make_inputs(both, seed=2)["x"], made["x"])
    assert not equal(made["x"], made["z"])
    assert equal(make_inputs(simple("float[N,3] z, float[3] x"), seed=1)["z"], made["z"])


@pytest.mark.parametrize(
    ("declared", "dims", "message"),
    [
        ("float[N,3] x", {"M": 2}, "no input has a dim called 'M'; symbolic dims: N"),
        ("float[3] x", {"M": 2}, "symbolic dims: none"),
        ("float[N,3] x", {"N": -1}, "dim 'N' cannot be -1"),
        ("float[N,1000000,1000000] x", {}, "too large to make up"),
        ("float[N] x", {"N": 1 << 40}, "too large to make up"),
    ],
)
def test_what_cannot_be_made_is_refused(declared: str, dims: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        make_inputs(simple(declared), dims=dims)


def test_unknown_ranks_and_zero_dims_can_be_made() -> None:
    check_inputs(simple("float[] x"), make_inputs(simple("float[] x")))
    check_inputs(simple("float x"), make_inputs(simple("float x")))
    check_inputs(simple("float[0,?] x"), make_inputs(simple("float[0,?] x")))


@pytest.mark.parametrize("dims", [{}, {"H": 1}, {"H": 0}], ids=["8", "1", "0"])
def test_npz_and_data_sets_give_back_what_was_saved(dims: dict[str, int], tmp_path: Path) -> None:
    model = model_of()
    made = make_inputs(model, dims=dims)
    save_npz(made, tmp_path / "inputs.npz")
    save_test_data_set(tmp_path / "set", model, made)
    for path in (tmp_path / "inputs.npz", tmp_path / "set"):
        back = load_inputs(path, model)
        check_inputs(model, back)
        assert set(back) == set(made)
        assert all(equal(back[name], made[name]) for name in made), path
    untyped = load_inputs(tmp_path / "inputs.npz")
    assert all(equal(untyped[name], made[name]) for name in made)


def test_empty_optionals_and_sequences_are_kept(tmp_path: Path) -> None:
    model = model_of()
    made = make_inputs(model)
    made["maybe"] = None
    made["parts"] = []
    save_npz(made, tmp_path / "inputs.npz")
    save_test_data_set(tmp_path / "set", model, made)
    for path in (tmp_path / "inputs.npz", tmp_path / "set"):
        back = load_inputs(path, model)
        assert back["maybe"] is None
        assert back["parts"] == []


def test_numpy_reads_what_is_written_and_bit_patterns_are_typed(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    half = np.array([1.5, -2], ml_dtypes.bfloat16)
    save_npz({"half": half, "x/y": np.ones(2, np.float32)}, path)
    with np.load(path) as archive:
        assert archive["half"].dtype == np.uint16
        assert archive["x/y"].tolist() == [1, 1]
    # An archive by NumPy itself says nothing of bfloat16: the model does.
    model = simple("bfloat16[2] x, float8e4m3fn[2] z, uint16[2] u")
    np.savez(
        path,
        x=half.view(np.uint16),
        z=np.array([1, 2], ml_dtypes.float8_e4m3fn).view(np.uint8),
        u=np.array([1, 2], np.uint16),
    )
    back = load_inputs(path, model)
    check_inputs(model, back)
    assert equal(back["x"], half)
    np.savez(path, x=half, z=np.zeros(2, ml_dtypes.float8_e4m3fn), u=np.array([1, 2], np.uint16))
    check_inputs(model, load_inputs(path, model))


def test_names_that_look_like_elements_are_names_when_the_model_says_so(tmp_path: Path) -> None:
    model = simple()
    declared_inputs(model)[0].name = "x[0]"
    x = np.ones((2, 3), np.float32)
    save_npz({"x[0]": x}, tmp_path / "inputs.npz")
    assert equal(load_inputs(tmp_path / "inputs.npz", model)["x[0]"], x)


def test_the_same_inputs_give_the_same_file(tmp_path: Path) -> None:
    made = make_inputs(model_of())
    save_npz(made, tmp_path / "a.npz")
    save_npz(made, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"X": np.zeros((2, 3), np.float32)}, "no input 'X'; did you mean 'x'?"),
        ({"other": np.zeros((2, 3), np.float32)}, "no input 'other'; it has inputs 'x'"),
        ({}, "input 'x' (float32[N,3]) is missing"),
        (
            {"x": np.zeros((2, 3))},
            "input 'x': declared float32[N,3], given float64[2,3]: the dtype differs",
        ),
        ({"x": np.zeros(3, np.float32)}, "given float32[3]: the rank differs"),
        ({"x": np.zeros((2, 4), np.float32)}, "given float32[2,4]: the size of axis 1 differs"),
        ({"x": [np.zeros((2, 3), np.float32)]}, "given a sequence"),
        ({"x": None}, "given nothing"),
        ({"x": np.array([["a", "b", "c"]], object)}, "the dtype differs"),
    ],
)
def test_inputs_that_do_not_fit_are_named(inputs: dict[str, InputValue], message: str) -> None:
    model = simple()
    declared_inputs(model)[0].name = "x"
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        check_inputs(model, inputs)
    assert "\n" not in str(caught.value)


def test_near_names_are_suggested() -> None:
    model = simple("float[N,3] input_ids")
    with pytest.raises(UsageError, match="did you mean 'input_ids'"):
        check_inputs(model, {"input_id": np.zeros((1, 3), np.float32)})


def test_initializers_may_be_overridden_but_need_not(tmp_path: Path) -> None:
    model = model_of(
        """<ir_version: 3, opset_import: ["" : 9]>
        g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"""
    )
    x = np.zeros(2, np.float32)
    check_inputs(model, {"x": x})
    check_inputs(model, {"x": x, "w": x})
    save_test_data_set(tmp_path, model, {"x": x, "w": x + 1})
    assert equal(load_inputs(tmp_path, model)["w"], x + 1)


def npz_entry(path: Path, name: str, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(f"{name}.npy", content)


def npy(array: np.ndarray, **options: bool) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def test_hostile_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "inputs.npz"
    model = simple()

    def refused(message: str) -> None:
        with pytest.raises(UsageError, match=message) as caught:
            load_inputs(path, model)
        assert "\n" not in str(caught.value)

    refused("does not exist")
    path.write_bytes(b"no archive")
    refused("not a whole .npz file")
    npz_entry(path, "x", npy(np.array([{}], object), allow_pickle=True))
    refused("holds Python objects")
    npz_entry(path, "x", b"no array")
    refused("not a NumPy array")
    header = npy(np.zeros((2, 3), np.float32))
    npz_entry(path, "x", header.replace(b"(2, 3)", b"(9, 9)"))
    refused("does not hold as much as its shape says")
    npz_entry(path, "x", header.replace(b"(2, 3), }      ", b"(99999999999,)}"))
    refused("does not hold as much|not a NumPy array")
    monkeypatch.setattr("onnxreduce.npz.FREE", 1 << 20)
    npz_entry(path, "x", npy(np.zeros(1 << 20, np.float32)))
    refused("would expand to 4194432 bytes")
    npz_entry(path, "x", header)
    path.write_bytes(path.read_bytes()[:-30])
    refused("not a whole .npz file")
    content = bytearray(npz_bytes(tmp_path, header))
    content[60] ^= 0xFF
    path.write_bytes(content)
    refused("not a whole .npz file|not a NumPy array")


def npz_bytes(tmp_path: Path, content: bytes) -> bytes:
    npz_entry(tmp_path / "other.npz", "x", content, zipfile.ZIP_STORED)
    return (tmp_path / "other.npz").read_bytes()


def test_broken_data_sets_are_refused(tmp_path: Path) -> None:
    model = simple()
    folder = tmp_path / "set"
    folder.mkdir()
    with pytest.raises(UsageError, match="holds 0 inputs"):
        load_inputs(folder, model)
    (folder / "input_0.pb").write_bytes(b"\xff\xff\xff")
    with pytest.raises(UsageError, match="not the ONNX message that 'x' needs"):
        load_inputs(folder, model)
    tensor = onnx.helper.make_tensor("x", 1, [2, 3], np.zeros(6))
    tensor.dims[:] = [1 << 20, 1 << 20]
    (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    with pytest.raises(UsageError, match="the file is damaged"):
        load_inputs(folder, model)
    (folder / "input_1.pb").write_bytes(tensor.SerializeToString())
    with pytest.raises(UsageError, match="holds 2 inputs"):
        load_inputs(folder, model)


def test_files_without_an_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/dev/zero is no regular file"):
        load_inputs(Path("/dev/zero"))
    (tmp_path / "input_0.pb").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=r"input_0\.pb is no regular file"):
        load_inputs(tmp_path, simple())
    with pytest.raises(UsageError, match="/dev/zero is no regular file"):
        load_model(Path("/dev/zero"))


def test_find_says_where_inputs_come_from(tmp_path: Path) -> None:
    model = simple()
    name = declared_inputs(model)[0].name or ""
    path = tmp_path / "model.onnx"
    made, source = find_inputs(path, model, None, seed=3, dims={"N": 5})
    assert source == "made from the signature, seed 3, N=5"
    assert np.shape(made[name]) == (5, 3)  # type: ignore[arg-type]

    x = np.full((2, 3), 7, np.float32)
    save_test_data_set(tmp_path / "test_data_set_0", model, {name: x})
    found, source = find_inputs(path, model, None)
    assert source == "test_data_set_0 beside the model"
    assert equal(found[name], x)
    found, _ = find_inputs(path, model, tmp_path)
    assert equal(found[name], x)

    save_npz({name: x + 1}, tmp_path / "given.npz")
    found, source = find_inputs(path, model, tmp_path / "given.npz")
    assert source == f"--inputs {tmp_path / 'given.npz'}"
    assert equal(found[name], x + 1)

    other = simple("float[N,4] x")
    made, source = find_inputs(path, other, None)
    assert source.startswith("made from the signature, seed 0, N=1 (test_data_set_0 beside")
    with pytest.raises(UsageError, match="size of axis 1"):
        find_inputs(path, other, tmp_path / "given.npz")


@pytest.mark.slow
def test_data_of_node_cases_survives(tmp_path: Path) -> None:
    checked = 0
    for index, test in enumerate(node_cases()[::7]):
        model = ir.from_proto(test.model)
        values = declared_inputs(model)
        given = [
            ir.serde.deserialize_tensor(item).numpy()
            if isinstance(item, onnx.TensorProto)
            else item
            for item in test.data_sets[0][0]
        ]
        inputs = {value.name or "": item for value, item in zip(values, given, strict=False)}
        save_test_data_set(tmp_path / str(index), model, inputs)
        back = load_inputs(tmp_path / str(index), model)
        check_inputs(model, back)
        save_npz(back, tmp_path / "inputs.npz")
        again = load_inputs(tmp_path / "inputs.npz", model)
        assert all(equal(again[name], back[name]) for name in back), test.name
        check_inputs(model, make_inputs(model))
        checked += 1
    assert checked > 150


def test_read_npz_gives_arrays_by_name(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(3), y=np.zeros((0, 2)))
    arrays = read_npz(tmp_path / "a.npz")
    assert arrays["x"].tolist() == [0, 1, 2]
    assert arrays["y"].shape == (0, 2)
