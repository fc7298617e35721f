"""OpenVINO, where its package is installed (``pip install openvino``)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import onnx

from onnxreduce.backends.base import Backend, BackendError, Info, Value
from onnxreduce.backends.expose import exposed
from onnxreduce.backends.spec import Option, Spec

FIX = "pip install openvino"


class OpenVinoBackend(Backend):
    """``openvino``: in single precision and with one thread, unless told otherwise."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "device": Option("as OpenVINO names it", "CPU"),
        "precision": Option("of inference: f32, f16, bf16 or the device's own choice", "f32"),
        "threads": Option("threads of inference", "1"),
    }

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        if importlib.util.find_spec("openvino") is None:
            raise BackendError("unsupported", f"no package openvino here; {FIX}")
        import openvino

        self._core: Any = openvino.Core()
        config: dict[str, Any] = {"INFERENCE_NUM_THREADS": int(self.option("threads"))}
        if self.option("precision") != "auto":
            config["INFERENCE_PRECISION_HINT"] = self.option("precision")
        self._config = config

    def version(self) -> str:
        return f"openvino {importlib.metadata.version('openvino')}"

    def run(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        device = self.option("device")
        try:
            compiled = self._core.compile_model(str(model_path), device, self._config)
        except Exception as error:
            raise BackendError("load", str(error)) from error
        # By place: a port may carry several names, or that of the node.
        names = [
            output.name for output in onnx.load(model_path, load_external_data=False).graph.output
        ]
        try:
            results = compiled(_feeds(compiled.inputs, inputs))
            values = [np.array(results[port]) for port in compiled.outputs]
        except Exception as error:
            raise BackendError("run", str(error)) from error
        return dict(zip(names, values, strict=True))

    def run_all(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        with exposed(model_path) as path:
            return self.run(path, inputs)

    @classmethod
    def probe(cls) -> list[Info]:
        if importlib.util.find_spec("openvino") is None:
            return [Info("openvino", reason="the package openvino is not installed", fix=FIX)]
        import openvino

        version = f"openvino {importlib.metadata.version('openvino')}"
        devices = ", ".join(openvino.Core().available_devices)
        return [Info("openvino", version, devices)]


def _feeds(ports: Any, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """Inputs that the compiled model still has."""
    wanted = {name for port in ports for name in port.get_names()}
    return {name: value for name, value in inputs.items() if name in wanted}
