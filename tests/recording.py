"""Cases with their recordings, for tests that cut and rewire them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnxreduce.activations import MadeUp, Recorded, record
from onnxreduce.case import Case
from onnxreduce.modelio import save_model
from onnxreduce.process import WorkerError

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


class Direct:
    """Calls functions in this process; an exception looks like one in a worker."""

    def call(
        self, target: str, *args: Any, timeout: float | None = None, memory: int | None = None
    ) -> Any:
        module, name = target.split(":")
        try:
            return getattr(import_module(module), name)(*args)
        except Exception as error:
            raise WorkerError("exception", f"{type(error).__name__}: {error}") from error


def case_of(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> Case:
    return Case(ir.serde.deserialize_model(model), inputs)


def parsed(text: str, **inputs: Any) -> Case:
    """A case from the text form of a model, IR version 8 and opset 18 if it names none."""
    if not text.lstrip().startswith("<"):
        text = '<ir_version: 8, opset_import: ["": 18]>' + text
    model = onnx.parser.parse_model(text)
    return case_of(model, {name: np.asarray(value) for name, value in inputs.items()})


def recording_of(case: Case) -> Recorded | MadeUp:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "model.onnx")
        save_model(case, path)
        return record(case, path, Direct(), Path(name))


def recorded(case: Case) -> Case:
    """The case with values recorded on ONNX Runtime or the reference."""
    recording = recording_of(case)
    assert not recording.made_up, recording.notice
    return case.with_recording(recording)


def proto_of(case: Case) -> onnx.ModelProto:
    return ir.serde.serialize_model(case.model)


def text_of(case: Case) -> str:
    """The main graph in text form, one line."""
    return " ".join(onnx.printer.to_text(proto_of(case).graph).split())


def stored_cases(kind: str) -> Iterator[tuple[str, Case]]:
    """The cases of onnx's backend tests that are on disk: ``simple``, ``pytorch-converted``..."""
    for folder in sorted((DATA / kind).iterdir()):
        model = onnx.load(folder / "model.onnx")
        names = [value.name for value in model.graph.input]
        inputs = {}
        for number, name in enumerate(names):
            path = folder / "test_data_set_0" / f"input_{number}.pb"
            if path.exists():
                inputs[name] = _read(path, model.graph.input[number].type)
        yield folder.name, case_of(model, inputs)


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    content = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def light_case(name: str, size: int | None = None) -> Case:
    """One of onnx's light models (whole architectures, constant weights made random)."""
    model = onnx.load(DATA / "light" / f"light_{name}.onnx")
    inputs = {}
    rng = np.random.default_rng(0)
    have = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name not in have:
            dims = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
            inputs[value.name] = rng.standard_normal(dims, dtype=np.float32)
    _randomise(model, rng)
    return case_of(model, inputs)


def _randomise(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Random numbers for the weights, which the light models make by `ConstantOfShape`."""
    shapes = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        dims = numpy_helper.to_array(shapes[node.input[0]]) if node.op_type == _MAKER else None
        if dims is None or not 1 <= len(dims) <= 4:
            model.graph.node.append(node)
            continue
        # Positive, for a variance may be among them.
        array = rng.uniform(0.1, 1.0, tuple(dims)).astype(np.float32) / max(1, np.prod(dims[1:]))
        tensor = numpy_helper.from_array(array.astype(np.float32), node.output[0])
        model.graph.initializer.append(tensor)
        if model.ir_version < 4:
            value = onnx.helper.make_tensor_value_info(tensor.name, 1, tensor.dims)
            model.graph.input.append(value)


_MAKER = "ConstantOfShape"
