"""Backends: runtimes that a model can be run on, each named by a spec such as ``ort:threads=1``.

```python
from onnxreduce.backends import open_backend

ort = open_backend("ort:opt=disable_all")
outputs = ort.run("model.onnx", {"x": x})   # {"y": array}, or BackendError
```

To add one, write a subclass of `Backend` in a file of its own and list it in `registry.py`, or
in another package under the entry-point group ``onnxreduce.backends``.
"""

from onnxreduce.backends.base import Backend, BackendError, Info, Job, Kind, Unreliable, Value
from onnxreduce.backends.registry import (
    backend_class,
    backend_names,
    close_backends,
    isolated,
    list_backends,
    open_backend,
    warm_backend,
)
from onnxreduce.backends.spec import FLAG, Option, Spec, flag, parse_spec

__all__ = [
    "FLAG",
    "Backend",
    "BackendError",
    "Info",
    "Job",
    "Kind",
    "Option",
    "Spec",
    "Unreliable",
    "Value",
    "backend_class",
    "backend_names",
    "close_backends",
    "flag",
    "isolated",
    "list_backends",
    "open_backend",
    "parse_spec",
    "warm_backend",
]
