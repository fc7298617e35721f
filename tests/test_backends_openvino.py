from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxreduce.backends import BackendError, open_backend
from onnxreduce.backends.openvino import OpenVinoBackend

HERE = importlib.util.find_spec("openvino") is not None


@pytest.mark.skipif(HERE, reason="openvino is here")
def test_without_the_package_it_says_what_to_do() -> None:
    with pytest.raises(BackendError, match="pip install openvino") as caught:
        open_backend("openvino")
    assert caught.value.kind == "unsupported"
    (info,) = OpenVinoBackend.probe()
    assert not info.usable
    assert info.fix == "pip install openvino"


@pytest.mark.skipif(not HERE, reason="openvino is not installed")
def test_outputs_and_every_value(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y, float[2] z) {
      h = Neg(x) y = Relu(h) z = Identity(y) }"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    path, x = str(tmp_path / "m.onnx"), np.float32([1, -2])
    backend = open_backend("openvino")
    for name in ("y", "z"):
        np.testing.assert_array_equal(backend.run(path, {"x": x})[name], [0, 2])
    np.testing.assert_array_equal(backend.run_all(path, {"x": x})["h"], [-1, 2])
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(BackendError) as caught:
        backend.run(str(tmp_path / "bad.onnx"), {"x": x})
    assert caught.value.kind == "load"
