from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import pytest

from onnxreduce.case import Case
from onnxreduce.errors import UsageError
from onnxreduce.inputs import load_inputs
from onnxreduce.modelio import (
    IDLE,
    Store,
    inputs_beside,
    is_external,
    load_model,
    save_model,
    to_proto,
)
from onnxreduce.options import Options
from onnxreduce.start import first_case

WEIGHTS = np.arange(5000, dtype=np.float32)


def example() -> onnx.ModelProto:
    """Large tensors as initializer, in an attribute, in a subgraph and in a function."""
    proto = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[N] x, bool c) => (float[N] y) {
            a = Add(x, w)
            k = Constant <value = float[1] {1}> ()
            b = local.f (a)
            d = Add(b, k)
            y = If (c) <
                then_branch = t () => (float[N] p) { p = Add(d, inner) },
                else_branch = e () => (float[N] q) { q = Neg(d) }
            >
        }
        <domain: "local", opset_import: ["" : 17]>
        f (u) => (r) { m = Constant <value = float[1] {1}> ()  r = Mul(u, m) }
        """
    )
    tensor = onnx.numpy_helper.from_array
    proto.graph.initializer.append(tensor(np.ones(2, np.float32), "small"))
    proto.graph.initializer.append(tensor(WEIGHTS, "w"))
    proto.graph.node[1].attribute[0].t.CopyFrom(tensor(WEIGHTS + 1))
    proto.graph.node[4].attribute[0].g.initializer.append(tensor(WEIGHTS + 2, "inner"))
    proto.functions[0].node[0].attribute[0].t.CopyFrom(tensor(WEIGHTS + 3))
    return proto


def save(proto: onnx.ModelProto, path: Path, *, external: bool = False) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    if external:
        onnx.save(
            proto,
            path,
            save_as_external_data=True,
            location="weights.bin",
            size_threshold=0,
            convert_attribute=True,
        )
    else:
        onnx.save(proto, path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(example(), tmp_path / "in" / "model.onnx")


@pytest.mark.parametrize("original", [False, True], ids=["from-inline", "from-external"])
@pytest.mark.parametrize("external", [False, True], ids=["to-inline", "to-external"])
def test_candidates_are_what_the_case_is(tmp_path: Path, original: bool, external: bool) -> None:
    source = save(example(), tmp_path / "in" / "model.onnx", external=original)
    model = load_model(source)
    assert is_external(model) == original
    inputs = {"x": np.ones(5000, np.float32), "c": np.array(True)}
    case = Case(model, inputs)
    store = Store(tmp_path / "out", external)
    written = store.write(case)
    onnx.checker.check_model(str(written), full_check=True)
    again = Case(load_model(written), load_inputs(inputs_beside(written)))
    assert again.digest == case.digest
    onnx_reads = onnx.load(written)
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(onnx_reads.graph.initializer[1]), WEIGHTS
    )


def test_runtimes_read_candidates(path: Path, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    x = np.ones(5000, np.float32)
    feeds = {"x": x, "c": np.array(True)}
    case = Case(load_model(path), feeds)
    (wanted,) = onnx.reference.ReferenceEvaluator(example()).run(None, feeds)
    for external in (False, True):
        written = Store(tmp_path / str(external), external).write(case)
        session = ort.InferenceSession(str(written), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, feeds)[0], wanted, rtol=1e-6)


def test_external_candidates_share_their_tensors(path: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "out", external=True)
    first = Case(load_model(path), {})
    store.write(first)
    pooled = {file: file.stat().st_mtime_ns for file in store.pool.iterdir()}
    assert len(pooled) == 4
    edited = first.copy_model()
    edited.graph.initializers["w"].const_value = ir.Tensor(WEIGHTS + 1, name="other")
    second = store.write(Case(edited, {}))
    assert second.stat().st_size < 4000
    after = {file: file.stat().st_mtime_ns for file in store.pool.iterdir()}
    assert after == pooled  # the new value equals the constant's: written already


def test_tensors_that_nobody_uses_are_bounded(path: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "out", external=True)
    first = Case(load_model(path), {})
    kept = store.write(first)
    whole = sum(file.stat().st_size for file in store.pool.iterdir())
    for number in range(2, 12):
        edited = first.copy_model()
        edited.graph.initializers["w"].const_value = ir.Tensor(WEIGHTS + number, name="other")
        store.discard(store.write(Case(edited, {})))
    room = sum(file.stat().st_size for file in store.pool.iterdir())
    assert whole < room <= (1 + IDLE) * whole
    assert Case(load_model(kept), {}).digest == first.digest  # what is in use stays
    assert not list(store.pool.glob(".*"))


def test_candidates_go_and_their_numbers_are_not_reused(path: Path, tmp_path: Path) -> None:
    case = Case(load_model(path), {})
    for external in (False, True):
        store = Store(tmp_path / str(external), external)
        first, second = store.write(case), store.write(case)
        store.discard(first)
        assert not first.exists()
        assert not inputs_beside(first).exists()
        assert second.exists()
        store.discard(first)  # gone already: nothing to do
        third = Store(tmp_path / str(external), external).write(case)  # as after a crash
        assert third != second
        assert second.exists()


def test_store_is_thread_safe(path: Path, tmp_path: Path) -> None:
    case = Case(load_model(path), {})
    for external in (False, True):
        store = Store(tmp_path / str(external), external)
        with ThreadPoolExecutor(8) as pool:
            paths = list(pool.map(store.write, [case] * 8))
        assert len(set(paths)) == 8
        assert {Case(load_model(path), {}).digest for path in paths} == {case.digest}


def test_a_short_file_in_the_pool_is_written_again(path: Path, tmp_path: Path) -> None:
    case = Case(load_model(path), {})
    store = Store(tmp_path / "out", external=True)
    store.write(case)
    victim = sorted(store.pool.iterdir())[0]
    victim.write_bytes(b"cut")
    written = store.write(case)
    assert Case(load_model(written), {}).digest == case.digest


def test_save_is_atomic_and_spares_the_input(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    model = load_model(path)
    with pytest.raises(UsageError, match="never written to"):
        save_model(model, path)
    link = tmp_path / "link.onnx"
    link.symlink_to(path)
    with pytest.raises(UsageError, match="never written to"):
        save_model(model, link)
    assert path.read_bytes() == before
    out = tmp_path / "out.onnx"
    save_model(model, out)
    assert Case(load_model(out), {}).digest == Case(model, {}).digest
    assert [file.name for file in tmp_path.glob("*out*")] == ["out.onnx"]
    with pytest.raises(UsageError, match="cannot be written"):
        save_model(model, tmp_path / "nowhere" / "model.onnx")


def test_save_above_the_limit_puts_data_beside(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxreduce.modelio.PROTOBUF_LIMIT", 1 << 20)
    model = load_model(path)
    out = tmp_path / "big.onnx"
    save_model(model, out)
    assert out.stat().st_size < 4000
    assert (tmp_path / "big.onnx.data").stat().st_size >= 4 * WEIGHTS.nbytes
    onnx.checker.check_model(str(out), full_check=True)
    assert Case(load_model(out), {}).digest == Case(model, {}).digest


def test_external_data_is_mapped_not_read(tmp_path: Path) -> None:
    """A sparse file stands for weights that would not fit into memory."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Add(x, w) }'
    )
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[1 << 33])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(4 << 33)
    model = load_model(save(proto, tmp_path / "model.onnx"))
    held = model.graph.initializers["w"].const_value
    assert held is not None
    assert held.nbytes == 4 << 33
    assert not held.numpy()[-100:].any()


def test_unsorted_nodes_are_sorted_and_cycles_refused(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[N] x) => (float[N] y) { a = Relu(x)  y = Neg(a) }"
    )
    proto.graph.node.reverse()
    model = load_model(save(proto, tmp_path / "model.onnx"))
    assert [node.op_type for node in model.graph] == ["Relu", "Neg"]
    start = first_case(tmp_path / "model.onnx", None, Options())
    assert "nodes were sorted when it was read" in start.origin
    assert start.made_up
    proto.graph.node[1].input[0] = "y"
    with pytest.raises(UsageError, match="cycle"):
        load_model(save(proto, tmp_path / "cycle.onnx"))


def test_what_no_order_puts_right_is_told_in_one_line(tmp_path: Path) -> None:
    own = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[N] x) => (float[N] y) { a = Add(x, a)  y = Neg(a) }"
    )
    with pytest.raises(UsageError, match=r"the Add node of 'a' reads its own result$"):
        load_model(save(own, tmp_path / "own.onnx"))
    outer = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (bool x, float[N] z) => (float[N] y) {
            y = If(x) <then_branch = yes () => (float[N] q) { q = Identity(z) },
                       else_branch = no () => (float[N] z) { }>
        }"""
    )
    with pytest.raises(UsageError, match=r"'no' gives 'z', which it does not make: .*Identity"):
        load_model(save(outer, tmp_path / "outer.onnx"))


Damage = Callable[[onnx.ModelProto], None]


def external(location: str, **entries: int) -> Damage:
    def damage(proto: onnx.ModelProto) -> None:
        tensor = proto.graph.initializer[1]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            tensor.external_data.add(key=key, value=str(value))

    return damage


def dims(*sizes: int) -> Damage:
    def damage(proto: onnx.ModelProto) -> None:
        proto.graph.initializer[1].dims[:] = sizes

    return damage


def drop(field: str) -> Damage:
    return lambda proto: proto.ClearField(field)


def read_unknown(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].input[0] = "nowhere"


def define_twice(proto: onnx.ModelProto) -> None:
    proto.graph.node.add(op_type="Relu", input=["x"], output=["a"])


def wrong_field(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].int64_data.extend([1, 2])


def unknown_type(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].data_type = 99


def bad_text(proto: onnx.ModelProto) -> None:
    attribute = proto.graph.node[0].attribute.add(name="s", type=onnx.AttributeProto.STRINGS)
    attribute.strings.append(b"\xff\xfe")


def map_type(proto: onnx.ModelProto) -> None:
    kind = proto.graph.output[0].type.map_type
    kind.key_type = onnx.TensorProto.INT64
    kind.value_type.tensor_type.elem_type = 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop("graph"), "not an ONNX model"),
        (drop("opset_import"), "imports no operator set"),
        (dims(5001), "holds 20000 bytes, but FLOAT.5001. takes 20004"),
        (dims(-1), "negative dim"),
        (dims(1 << 40, 1 << 40), "claims 1208925819614629174706176 elements"),
        (external("missing.bin"), "is missing"),
        (external("short.bin"), "cut off"),
        (external("short.bin", offset=1 << 40), "cut off"),
        (external("short.bin", offset=-4), "claims"),
        (external("long.bin", length=8), "takes 20000"),
        (external("/etc/hostname"), "outside the model's folder"),
        (external("../outside.bin"), "outside the model's folder"),
        (external("..\\outside.bin"), "outside the model's folder"),
        (external("link.bin"), "a link out of the model's folder"),
        (external(""), "without a usable location"),
        (external("a\0b"), "without a usable location"),
        (external("."), "is missing"),
        (read_unknown, "reads 'nowhere', which nothing defines"),
        (define_twice, "'a' is defined more than once"),
        (wrong_field, "holds 0 numbers"),
        (unknown_type, "has type 99, unknown"),
        (bad_text, "cannot be read"),
        (map_type, "map types"),
    ],
)
def test_damaged_models_are_refused_in_one_line(
    damage: Damage, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "short.bin").write_bytes(b"x" * 1000)
    (folder / "long.bin").write_bytes(b"x" * 30000)
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    proto = example()
    damage(proto)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(UsageError, match=message) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_text("this is a text, not a model\n" * 10)
    (tmp_path / "zip.onnx").write_bytes(b"PK\x03\x04" + bytes(100))
    for name, message in [
        ("none.onnx", "does not exist"),
        (".", "is a directory"),
        ("empty.onnx", "is empty"),
        ("text.onnx", "not an ONNX model"),
        ("zip.onnx", "not an ONNX model"),
    ]:
        with pytest.raises(UsageError, match=message):
            load_model(tmp_path / name)


def test_download_cache_links_are_followed(tmp_path: Path) -> None:
    """Model and data as links into one folder of blobs."""
    save(example(), tmp_path / "blobs" / "model.onnx", external=True)
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for name in ("model.onnx", "weights.bin"):
        (snapshot / name).symlink_to(tmp_path / "blobs" / name)
    model = load_model(snapshot / "model.onnx")
    assert Case(model, {}).digest == Case(load_model(tmp_path / "blobs" / "model.onnx"), {}).digest


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    proto = onnx.ModelProto(ir_version=8)
    proto.opset_import.add(domain="", version=17)
    graph = proto.graph
    for _ in range(200):
        node = graph.node.add(op_type="If", output=["y"])
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    path = tmp_path / "deep.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(UsageError, match="not an ONNX model"):
        load_model(path)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_give_a_model_or_one_line(seed: int, tmp_path: Path) -> None:
    content = example().SerializeToString()
    rng = random.Random(seed)
    path = tmp_path / "model.onnx"
    lines: list[str] = []
    for _ in range(150):
        data = bytearray(content)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.choice([1, 2, 10])):
            # Most of the file is weights: aim at the structure between them.
            place = rng.choice([rng.randrange(len(data)), rng.randrange(min(len(data), 300))])
            data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            case = Case(load_model(path), {})
        except UsageError as error:
            lines.append(str(error))
        else:
            to_proto(Case(case.copy_model(), {}))
            assert case.digest
            assert case.size
    assert len(lines) > 20
    assert not any("\n" in line for line in lines)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_files_are_refused(path: Path) -> None:
    path.chmod(0)
    with pytest.raises(UsageError, match="cannot be read"):
        load_model(path)


def test_training_information_is_carried_along(tmp_path: Path) -> None:
    proto = example()
    step = proto.training_info.add().algorithm.node.add(op_type="Neg", input=["w"], output=["n"])
    case = Case(load_model(save(proto, tmp_path / "model.onnx")), {})
    written = to_proto(Case(case.copy_model(), {}))
    assert written.training_info[0].algorithm.node[0] == step
