"""onnxreduce: reduce an ONNX model to the smallest one that still shows a bug."""

__version__ = "0.1.0"
