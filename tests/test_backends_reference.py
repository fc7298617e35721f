from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxreduce.backends import BackendError, open_backend

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}> {
  m = MatMul(x, w)
  y = Relu(m)
}
"""


def save(text: str, path: Path) -> str:
    onnx.save(parser.parse_model(text), path)
    return str(path)


def test_outputs_and_every_value(tmp_path: Path) -> None:
    path = save(MODEL, tmp_path / "m.onnx")
    x = np.float32([[1, 0, 0], [-1, 0, 0]])
    reference, ort = open_backend("reference"), open_backend("ort")
    np.testing.assert_array_equal(reference.run(path, {"x": x})["y"], [[1, 2], [0, 0]])
    values, others = reference.run_all(path, {"x": x}), ort.run_all(path, {"x": x})
    assert values.keys() == others.keys() == {"m", "y"}
    for name, value in values.items():
        np.testing.assert_allclose(value, others[name])


def test_failures_have_a_kind(tmp_path: Path) -> None:
    unknown = save(MODEL.replace("Relu", "Quux"), tmp_path / "u.onnx")
    with pytest.raises(BackendError, match="Quux") as caught:
        open_backend("reference").run(unknown, {})
    assert caught.value.kind == "load"
    path = save(MODEL, tmp_path / "m.onnx")
    with pytest.raises(BackendError) as caught:
        open_backend("reference").run(path, {"x": np.ones((2, 5), np.float32)})
    assert caught.value.kind == "run"
    (tmp_path / "none.onnx").write_bytes(b"nothing")
    with pytest.raises(BackendError) as caught:
        open_backend("reference").run(str(tmp_path / "none.onnx"), {})
    assert caught.value.kind == "load"
