"""Files from strangers: damaged, or made to do harm. One line, little memory, nothing elsewhere."""

from __future__ import annotations

import os
import random
import resource
import struct
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import parallel_branches
from node_cases import node_cases
from onnx import TensorProto, helper

from onnxreduce.cli import main
from onnxreduce.emit.escape import docstring, message
from onnxreduce.errors import UsageError
from onnxreduce.inputs import load_inputs
from onnxreduce.modelread import load_model
from onnxreduce.options import Options
from onnxreduce.start import first_case
from onnxreduce.wire import FREE

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SLOW = [pytest.mark.slow, pytest.mark.timeout(1800)]
ALLOWED = 4
"""So many times a file's size may be allocated for it, beyond what every file may take."""


def read(path: Path) -> str:
    """How reading a file as the original ends: ``read``, or the line that refuses it."""
    line = "read"
    try:
        case = first_case(path, None, Options()).case
        assert case.digest
        assert case.size.nodes >= 0
    except UsageError as error:
        line = str(error)
    assert line.strip()
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("squeezenet", 16),
        *(
            pytest.param(name, 1, marks=SLOW)
            for name in ("squeezenet", "resnet50", "shufflenet", "inception_v1", "densenet121")
        ),
    ],
)
def test_files_cut_off_at_every_kilobyte(name: str, step: int, tmp_path: Path) -> None:
    content = (LIGHT / f"light_{name}.onnx").read_bytes()
    path = tmp_path / "model.onnx"
    for end in range(0, len(content), 1024 * step):
        path.write_bytes(content[:end])
        assert read(path) != "read", end
    path.write_bytes(content)
    assert read(path) == "read"


def flipped(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(8 * len(data))
        data[place // 8] ^= 1 << place % 8
    return bytes(data)


@pytest.mark.parametrize("count", [25, pytest.param(500, marks=SLOW)])
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_flipped_bits(name: str, count: int, tmp_path: Path) -> None:
    content = (LIGHT / f"light_{name}.onnx").read_bytes()
    rng = random.Random(count)
    path = tmp_path / "model.onnx"
    ends: Counter[bool] = Counter()
    for _ in range(count):
        path.write_bytes(flipped(content, rng))
        ends[read(path) == "read"] += 1
    assert min(ends[True], ends[False]) > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_flipped_bits_in_every_operator(tmp_path: Path) -> None:
    """Where all is structure and nothing is weights: every type, attribute and kind of body."""
    rng = random.Random(1)
    path = tmp_path / "model.onnx"
    ends: Counter[bool] = Counter()
    for case in node_cases():
        content = case.model.SerializeToString()
        for _ in range(5):
            path.write_bytes(flipped(content, rng))
            ends[read(path) == "read"] += 1
    assert min(ends[True], ends[False]) > 1000


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=SLOW)])
def test_damaged_models_reduce_or_are_refused(
    count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What reading lets pass must not trip what comes after."""
    oracle = tmp_path / "oracle.py"
    oracle.write_text("def interesting(case):\n    return len(case.model.graph.node) > 0\n")
    content = parallel_branches().SerializeToString()
    rng = random.Random(11)
    folder = tmp_path / "runs"
    folder.mkdir()
    done = 0
    while done < count:
        path = folder / "model.onnx"
        path.write_bytes(flipped(content, rng))
        if read(path) != "read":
            continue
        done += 1
        arguments = [path, "--oracle", oracle, "--output", folder / "out", "--force", "--quiet"]
        status = main([*map(str, arguments), "--max-calls", "4", "--jobs", "1"])
        said = capfd.readouterr().err
        assert status in (0, 1, 2, 3), said
        assert "Traceback" not in said
        assert sorted(p.name for p in folder.iterdir()) in (["model.onnx"], ["model.onnx", "out"])


# Bombs: little on the disk, much in memory.


def varint(number: int) -> bytes:
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def small_model(size: int = 2) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def in_model(content: bytes) -> bytes:
    return small_model().SerializeToString() + content


def in_graph(content: bytes) -> bytes:
    return in_model(field(7, content))


def tensor_of_ones(dtype: int, number: int) -> bytes:
    """A weight whose numbers take a byte each."""
    ones = field(number, b"\1" * COUNT)
    dims = field(1, varint(COUNT))
    return in_graph(field(5, dims + b"\x10" + varint(dtype) + ones + field(8, b"w")))


COUNT = 24_000_000
EMPTY = 1_000_000
BOMBS: dict[str, Callable[[], bytes]] = {
    "nodes": lambda: in_graph(b"\x0a\0" * EMPTY),
    "weights": lambda: in_graph(b"\x2a\0" * EMPTY),
    "descriptions": lambda: in_graph(b"\x6a\0" * EMPTY),
    "attributes": lambda: in_graph(field(1, b"\x2a\0" * EMPTY)),
    "reads": lambda: in_graph(field(1, b"\x0a\0" * 2 * EMPTY)),
    "texts": lambda: in_graph(field(5, b"\x32\0" * 2 * EMPTY)),
    "functions": lambda: in_model(b"\xca\1\0" * EMPTY),
    "metadata": lambda: in_model(b"\x72\0" * EMPTY),
    "unknown": lambda: in_graph(b"\xfa\7\0" * (EMPTY // 3)),
    "dims": lambda: in_graph(field(5, field(1, b"\1" * COUNT))),
    "int64": lambda: tensor_of_ones(TensorProto.INT64, 7),
    "int8": lambda: tensor_of_ones(TensorProto.INT8, 5),
    "input": lambda: small_model((1 << 31) - 1).SerializeToString(),
}


def peak_of(action: Callable[[], object]) -> int:
    """Bytes of memory that a call needs, measured in a process of its own."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            # The high-water mark begins anew here.
            Path("/proc/self/clear_refs").write_text("5")
            before = high_water()
            resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
            action()
            os.write(send, struct.pack("q", high_water() - before))
            status = 0
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        told = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return int(struct.unpack("q", told)[0])


def high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


LINUX = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")


@LINUX
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_take_no_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(BOMBS[name]())
    assert peak_of(lambda: read(path)) < max(FREE, ALLOWED * path.stat().st_size)


@LINUX
def test_bombs_among_inputs(tmp_path: Path) -> None:
    onnx.save(small_model(), tmp_path / "model.onnx")
    data = tmp_path / "test_data_set_0"
    data.mkdir()
    file = data / "input_0.pb"
    file.write_bytes(b"\x32\0" * 2 * EMPTY)
    model = load_model(tmp_path / "model.onnx")

    def refused() -> None:
        with pytest.raises(UsageError, match=r"input_0\.pb"):
            load_inputs(data, model)

    assert peak_of(refused) < max(FREE, ALLOWED * file.stat().st_size)


@LINUX
def test_zip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in "abc":
            header = head % (1 << 25)
            with archive.open(f"{name}.npy", "w") as entry:
                entry.write(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
                for _ in range(1 << 5):
                    entry.write(bytes(1 << 22))

    def refused() -> None:
        with pytest.raises(UsageError, match="would expand"):
            load_inputs(path)

    assert peak_of(refused) < FREE


def test_archive_that_lies_about_its_size(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez_compressed(path, x=np.zeros(1 << 20, np.float32))
    content = bytearray(path.read_bytes())
    true = struct.pack("<I", (1 << 22) + 128)
    assert content.count(true) >= 1
    path.write_bytes(bytes(content).replace(true, struct.pack("<I", 140)))
    with pytest.raises(UsageError, match=r"does not hold as much|not a whole"):
        load_inputs(path)


# Names are chosen by whoever made the file.

NAMES = [
    "../../escaped",
    "/abs/olute",
    "a\nb",
    "a b",
    "..",
    "con:|?*",
    "é" * 100,
    "x" * 300,
    "%s{0}",
]


@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(n, marks=SLOW) for n in NAMES[1:])])
def test_names_are_no_paths(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "a" / "b" / "c"
    home.mkdir(parents=True)
    x, y = (
        helper.make_tensor_value_info(f"{name}{end}", TensorProto.FLOAT, ["n", 3]) for end in "xy"
    )
    nodes = [
        helper.make_node("Relu", [f"{name}x"], [f"{name}1"], name=f"{name}r"),
        helper.make_node("Tanh", [f"{name}1"], [f"{name}2"], name=f"{name}t"),
        helper.make_node("Add", [f"{name}2", f"{name}w"], [f"{name}y"], name=f"{name}a"),
    ]
    weight = helper.make_tensor(f"{name}w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    graph = helper.make_graph(nodes, name, [x], [y], [weight], doc_string=name)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, home / "model.onnx")
    oracle = home / "oracle.py"
    oracle.write_text(
        "def interesting(case):\n"
        "    return 'Tanh' in [node.op_type for node in case.model.graph.node]\n"
    )
    arguments = [home / "model.onnx", "--oracle", oracle, "--output", home / "out", "--quiet"]
    assert main([*map(str, arguments), "--jobs", "1"]) == 0, capfd.readouterr().err
    outside = [p for p in tmp_path.rglob("*") if home / "out" not in (p, *p.parents)]
    kept = {home, *home.parents, home / "model.onnx", oracle, home / "__pycache__"}
    assert not [p for p in outside if p not in kept and p.parent.name != "__pycache__"]


def test_a_long_message_keeps_both_ends() -> None:
    said = "Session cannot be made: " + "at one place or another, " * 40 + "axis 3 is out of range"
    for shown in (message(said, 120), docstring(said, 120)):
        assert len(shown) <= 120
        assert shown.startswith("Session cannot be made")
        assert shown.endswith("axis 3 is out of range")
