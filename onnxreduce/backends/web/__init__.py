"""ONNX Runtime Web in a real browser: wasm, WebGPU, WebGL and WebNN, any version and bundle."""

from onnxreduce.backends.web.backend import WebBackend

__all__ = ["WebBackend"]
