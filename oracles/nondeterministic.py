"""A backend gives different results for the same model and inputs.

    onnxreduce model.onnx --oracle nondeterministic --set backend=ort:threads=4 --set runs=10

Half of the runs share a session, the others open their own. A model with random operators is
nondeterministic by right: take them out, or give them a seed, before you reduce.
"""

from onnxreduce import Verdict
from onnxreduce.backends import BackendError, close_backends, warm_backend
from onnxreduce.compare import Tolerance, compare


def interesting(case, *, backend="ort", runs=6, atol=0.0, rtol=0.0):
    """A backend gives different results for the same model and inputs.

    runs: how many results are compared with the first; atol, rtol: as in numpy.allclose.
    """
    side = warm_backend(backend)
    job = (str(case.model_path), case.inputs)
    shared = max(2, (runs + 1) // 2)
    results = side.run_batch([job] * shared)
    results += [side.run_batch([job])[0] for _ in range(runs + 1 - shared)]
    failed = [result for result in results if isinstance(result, BackendError)]
    if len(failed) == len(results):
        return Verdict.boring(f"{backend} fails: {failed[0]}")
    if failed:
        detail = f"fails in {len(failed)} of {len(results)} runs: {failed[0]}"
        return Verdict.interesting(detail, f"sometimes fails: {failed[0].kind}")
    tolerance = Tolerance(atol, rtol)
    found = [compare(results[0], result, tolerance) for result in results[1:]]
    odd = [comparison for comparison in found if not comparison.agree]
    if not odd:
        return Verdict.boring(f"{len(results)} runs on {backend} agree; try more (--set runs=50)")
    worst = max(odd, key=lambda comparison: comparison.worst.max_abs)
    return Verdict.interesting(f"{len(odd)} of {len(found)} runs: {worst.summary()}", worst.kind)


def identity(*, backend="ort", **others):
    """The version that a verdict depends on."""
    return warm_backend(backend).version()


def teardown():
    close_backends()
