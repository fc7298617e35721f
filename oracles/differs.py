"""Two backends give different results.

    onnxreduce model.onnx --oracle differs --set expected=ort:opt=disable_all --set actual=ort
    onnxreduce model.onnx --oracle differs --set expected=ort@1.16.3 --set actual=ort@1.20.1
    onnxreduce model.onnx --oracle differs --set expected=reference --set actual=plugin:mine.py

Held from the original, so that the reduction ends at the same bug: the kind of difference (values,
NaN or infinity and on which side, shape, dtype, the cause of an error), what the referee says,
and the range of magnitudes. Not taken for a difference: what a change of the inputs by a unit in
the last place explains.
"""

from onnxreduce import differential
from onnxreduce.backends import close_backends, warm_backend
from onnxreduce.compare import Tolerance
from onnxreduce.suspects import Scene
from onnxreduce.suspects import suspects as find_suspects


def interesting(
    case,
    *,
    expected="ort:opt=disable_all",
    actual="ort",
    atol=1e-3,
    rtol=1e-3,
    scale=0.0,
    noise=True,
    referee="",
    loose=False,
    largest=0.0,
):
    """Two backends give different results.

    expected: the trusted side; actual: the other; atol, rtol: as in numpy.allclose; scale: the
    share of an output's largest value that is tolerated; noise: turn down numerical noise;
    referee: a third backend that says which side is wrong; loose: take wrong values, shapes,
    dtypes and NaN for the same bug; largest: the original's largest value (measured when 0).
    """
    return differential.differs(
        case,
        warm_backend(expected),
        warm_backend(actual),
        Tolerance(atol, rtol, scale),
        noise=noise,
        referee=warm_backend(referee) if referee else None,
        largest=largest,
        loose=loose,
    )


def hold(case, *, expected="ort:opt=disable_all", largest=0.0, **others):
    """Parameters that are measured once, on the original."""
    return {"largest": largest or differential.magnitude(case, warm_backend(expected))}


def suspects(
    case,
    *,
    expected="ort:opt=disable_all",
    actual="ort",
    atol=1e-3,
    rtol=1e-3,
    scale=0.0,
    **others,
):
    """Where the error is born, as far as one can look; what an error message mentions."""
    sides = warm_backend(expected), warm_backend(actual)
    tolerance = Tolerance(atol, rtol, scale)
    return find_suspects(Scene(str(case.model_path), case.inputs, *sides, tolerance))


def identity(*, expected="ort:opt=disable_all", actual="ort", referee="", **others):
    """The versions that a verdict depends on."""
    specs = [spec for spec in (expected, actual, referee) if spec]
    return "; ".join(f"{spec} = {warm_backend(spec).version()}" for spec in specs)


def teardown():
    close_backends()
