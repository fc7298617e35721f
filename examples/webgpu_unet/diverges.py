"""Does WebGPU disagree with wasm, both of the same bundle of ONNX Runtime Web?"""

import numpy as np

from onnxreduce.backends import BackendError, close_backends, warm_backend

JOBS = 1  # the GPU is there once


def interesting(case, *, actual="webgpu", version="1.23.2", bundle="ort.all.min.mjs", atol=1e-3):
    """WebGPU (or another provider) and wasm give different values."""
    try:
        expected, found = (
            warm_backend(f"web@{version}:{provider},bundle={bundle}").run(
                str(case.model_path), case.inputs
            )
            for provider in ("wasm", actual)
        )
    except BackendError as error:
        if error.kind == "unsupported":
            raise  # nothing was learnt about the model
        return False  # another bug
    return any(not np.allclose(found[name], expected[name], atol=atol) for name in expected)


teardown = close_backends
