"""Two backends and one case: do they differ, and is the difference the bug or a mirage?

The pieces of the ready-made oracle `differs`, to build other oracles from. They are strict on
purpose: a reducer follows every weakness of its oracle, and ends at numerical noise, at an
overflow, or at another bug altogether when the oracle lets it.

Nothing here remembers the original. What must stay as it was is in the verdict's signature (the
judge turns down a candidate whose signature is another one), or, for magnitudes, in a parameter
that `magnitude` measures once on the original.
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx

from onnxreduce.backends import Backend, BackendError, Value
from onnxreduce.backends.base import Job
from onnxreduce.backends.cause import cause, model_names
from onnxreduce.compare import Comparison, Difference, Tolerance, compare
from onnxreduce.tensors import Array
from onnxreduce.verdict import Verdict

ORDERS = 1e3
"""How far above the original's largest value a candidate's may be."""

PERTURBATIONS = (1, 1, 4)
"""Units in the last place by which the inputs are moved to measure noise, one run each."""

SMALL_MODEL = 64 << 20
"""Bytes of a model whose weights are perturbed when it has no float inputs."""


class OracleCase(Protocol):
    """What an oracle is given."""

    @property
    def model(self) -> onnx.ModelProto: ...
    @property
    def model_path(self) -> Any: ...
    @property
    def inputs(self) -> Mapping[str, Value]: ...


@dataclass(frozen=True)
class Ran:
    """One side: its outputs, or its error, and what it complained of meanwhile."""

    backend: Backend
    outputs: dict[str, Value]
    error: BackendError | None = None
    notes: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """The complaints as the end of a sentence; those of a GPU first, which tell most."""
        if not self.notes:
            return ""
        telling = sorted(self.notes, key=lambda note: not note.startswith("webgpu:"))
        more = f" (and {len(telling) - 2} more)" if len(telling) > 2 else ""
        shown = " | ".join(textwrap.shorten(note, 200, placeholder="…") for note in telling[:2])
        return f"; {self.backend.name} said: {shown}{more}"


def differs(
    case: OracleCase,
    expected: Backend,
    actual: Backend,
    tolerance: Tolerance,
    *,
    noise: bool = True,
    referee: Backend | None = None,
    largest: float = 0.0,
    loose: bool = False,
) -> Verdict:
    """Whether two backends differ on a case by more than the tolerances and by more than noise.

    Args:
        case: the candidate.
        expected: the trusted side.
        actual: the side under suspicion.
        tolerance: what is no difference.
        noise: turn down differences that a perturbation of the inputs explains (`is_noise`).
        referee: a third backend; which side it finds wrong becomes part of the signature.
        largest: the original's largest value (`magnitude`); 0: magnitudes are not held.
        loose: take wrong values, shapes, dtypes and NaN for the same bug.
    """
    left, right = run_on(expected, case), run_on(actual, case)
    if left.error or right.error:
        return judge_errors(case, left, right)
    found = compare(left.outputs, right.outputs, tolerance)
    if found.agree:
        return agreement(found, f"{expected.name} and {actual.name}", tolerance)
    detail = found.summary() + right.remark
    if found.kind == "values" and out_of_range(found, largest):
        return Verdict.boring(f"out of the original's range of {largest:.3g}: {detail}")
    if noise and is_noise(case, expected, left.outputs, found):
        return Verdict.boring(f"looks like numerical noise ({detail}); noise=false keeps it")
    verdict = Verdict.interesting(
        detail, "other results" if loose else kind_of(found, left.outputs)
    )
    return refereed(case, referee, left, right, tolerance, verdict) if referee else verdict


def run_on(backend: Backend, case: OracleCase) -> Ran:
    """Run a case; a failure that says something about the model is a result like another.

    Raises:
        BackendError: ``unsupported``: the backend cannot be used here.
    """
    try:
        return Ran(backend, backend.run(str(case.model_path), case.inputs), None, backend.notes)
    except BackendError as error:
        if error.kind == "unsupported":
            raise
        return Ran(backend, {}, error, backend.notes)


def judge_errors(case: OracleCase, left: Ran, right: Ran) -> Verdict:
    """The verdict when a side failed: interesting when only one did, and not for being slow."""
    if left.error and right.error:
        return Verdict.boring(f"both sides fail; expected: {left.error}; actual: {right.error}")
    side, error = ("expected", left.error) if left.error else ("actual", right.error)
    assert error is not None
    detail = f"{side} fails: {error}{(left if left.error else right).remark}"
    if error.kind == "timeout":
        return Verdict.skipped(detail)
    return Verdict.interesting(_one_line(detail), f"{side} fails: {error_signature(error, case)}")


def error_signature(error: BackendError, case: OracleCase) -> str:
    """The kind of a failure and the cause in its message, without names and numbers."""
    telling = cause(error.message, model_names(case.model))
    return f"{error.kind}: {telling}" if telling else error.kind


def agreement(found: Comparison, sides: str, tolerance: Tolerance) -> Verdict:
    """Boring, with the figures that tell how close the two sides are, and what to try."""
    sides = f"{sides} agree within {tolerance}"
    if not found.differences:
        return Verdict.boring(f"{sides}: there are no outputs")
    if all(d.max_abs == 0 for d in found.differences):
        return Verdict.boring(f"{sides}, to the last bit; try other inputs (--inputs, --seed)")
    worst = found.worst
    return Verdict.boring(
        f"{sides}: {worst.summary()}, max rel {max(d.max_rel for d in found.differences):.3g}; try "
        f"smaller tolerances (--set atol={worst.max_abs / 2:.1g} --set rtol=0) or other inputs "
        "(--inputs, --seed)"
    )


def out_of_range(found: Comparison, largest: float) -> bool:
    """Whether a value that differs is orders of magnitude above all values of the original."""
    return 0 < largest * ORDERS < max((d.magnitude for d in found.wrong), default=0.0)


def kind_of(found: Comparison, expected: Mapping[str, Value]) -> str:
    """The signature of a difference: what kind, and on which side non-finite values are."""
    if found.kind == "nonfinite":
        odd = [d for d in found.wrong if d.kind == "nonfinite"]
        ours = any(d.expected in ("nan", "inf", "-inf") for d in odd)
        return "non-finite expected" if ours else "non-finite actual"
    if found.kind == "values" and not all_finite(expected):
        return "values beside non-finite ones"
    return found.kind


def refereed(
    case: OracleCase,
    referee: Backend,
    left: Ran,
    right: Ran,
    tolerance: Tolerance,
    verdict: Verdict,
) -> Verdict:
    """Ask a third backend which side is wrong, and hold that in the signature."""
    third = run_on(referee, case)
    if third.error:
        return Verdict.skipped(f"the referee {referee.name} has no opinion: {third.error}")
    agreed = [compare(third.outputs, side.outputs, tolerance).agree for side in (left, right)]
    finding = {
        (True, False): "actual is wrong",
        (False, True): "expected is wrong",
        (False, False): "all three differ",
        (True, True): "the referee is between the two",
    }[agreed[0], agreed[1]]
    detail = f"{verdict.detail}; {referee.name}: {finding}"
    return Verdict.interesting(detail, f"{verdict.signature}, {finding}")


def is_noise(
    case: OracleCase, backend: Backend, outputs: Mapping[str, Value], found: Comparison
) -> bool:
    """Whether moving the inputs by about one unit in the last place moves the outputs as much.

    Exact zeros stay. A model without float inputs has its weights moved instead, when it is small,
    but not what looks like a constant: scalars and whole numbers (an exponent next to 2 makes NaN
    of negative numbers).

    Args:
        case: the candidate.
        backend: the expected side.
        outputs: its outputs.
        found: how the actual side differs from them.
    """
    wrong = {d.name.partition(".")[0]: d for d in found.wrong}
    if any(d.kind not in ("values", "nonfinite") for d in wrong.values()):
        return False
    with tempfile.TemporaryDirectory(prefix="onnxreduce-") as folder:
        jobs = _perturbed_jobs(case, Path(folder))
        moved = [r for r in backend.run_batch(jobs) if not isinstance(r, BackendError)]
    explained = set()
    for result in moved:
        for shift in compare(outputs, result).differences:
            name = shift.name.partition(".")[0]
            if name in wrong and _explains(shift, wrong[name]):
                explained.add(name)
    return explained == set(wrong)


def _explains(shift: Difference, wrong: Difference) -> bool:
    if wrong.kind == "nonfinite":
        return shift.kind == "nonfinite"
    return shift.kind == "values" and shift.max_abs >= wrong.max_abs / 2


def perturb(array: Array, ulps: int, generator: np.random.Generator) -> Array:
    """Move the finite, non-zero elements of a float array up or down by some units in the last
    place; other arrays as they are."""
    if array.dtype.kind not in "fV" or array.dtype.itemsize < 2 or array.dtype.itemsize > 8:
        return array
    bits = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}")
    steps = generator.choice(np.array([-ulps, ulps], bits.dtype), bits.shape)
    moved = (bits + steps).astype(bits.dtype).view(array.dtype).reshape(array.shape)
    wide, before = moved.astype(np.float64), array.astype(np.float64)
    # Near zero and at the largest number a step of the bits is no small step of the value.
    kept = (before == 0) | ~np.isfinite(before) | ~np.isfinite(wide) | (wide * before <= 0)
    return np.where(kept, array, moved)


def magnitude(case: OracleCase, backend: Backend) -> float:
    """The largest finite absolute value anywhere in a case, on a backend that can show it."""
    path, inputs = str(case.model_path), case.inputs
    try:
        values = backend.run_all(path, inputs)
    except BackendError:
        values = run_on(backend, case).outputs
    return max(top(values), top(inputs))


def top(values: Mapping[str, Value]) -> float:
    """The largest finite absolute value of all numeric tensors."""
    largest = 0.0
    for array in _arrays(list(values.values())):
        if array.size and array.dtype.kind not in "OUSTc":
            wide = np.abs(array.astype(np.float64))
            largest = max(largest, float(wide.max(where=np.isfinite(wide), initial=0.0)))
    return largest


def all_finite(values: Mapping[str, Value]) -> bool:
    """Whether no tensor holds a NaN or an infinity."""
    for array in _arrays(list(values.values())):
        exact = array.dtype.kind in "OUSTbiu"
        if not exact and not np.isfinite(array if array.dtype.kind == "c" else _f64(array)).all():
            return False
    return True


def _perturbed_jobs(case: OracleCase, folder: Path) -> list[Job]:
    path, inputs = str(case.model_path), case.inputs
    generator = np.random.default_rng(0)
    if any(array.dtype.kind in "fV" for array in _arrays(list(inputs.values()))):
        return [
            (path, {name: _perturb_value(value, ulps, generator) for name, value in inputs.items()})
            for ulps in PERTURBATIONS
        ]
    if Path(path).stat().st_size > SMALL_MODEL:
        return []
    jobs: list[Job] = []
    for index, ulps in enumerate(PERTURBATIONS):
        copy = folder / f"{index}.onnx"
        if _perturb_weights(path, copy, ulps, generator):
            jobs.append((str(copy), inputs))
    return jobs


def _perturb_weights(path: str, copy: Path, ulps: int, generator: np.random.Generator) -> bool:
    model = onnx.load(path, load_external_data=False)
    moved = False
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return False
        before = onnx.numpy_helper.to_array(tensor)
        if before.ndim == 0 or before.dtype.kind not in "fV":
            continue
        after = perturb(before, ulps, generator)
        whole = np.trunc(before.astype(np.float64)) == before.astype(np.float64)
        after = np.where(whole, before, after)
        if not np.array_equal(before, after):
            tensor.CopyFrom(onnx.numpy_helper.from_array(after, tensor.name))
            moved = True
    copy.write_bytes(model.SerializeToString())
    return moved


def _perturb_value(value: Value, ulps: int, generator: np.random.Generator) -> Value:
    if isinstance(value, list):
        return [_perturb_value(item, ulps, generator) for item in value]
    return value if value is None else perturb(value, ulps, generator)


def _arrays(values: Sequence[Any]) -> list[Array]:
    found: list[Array] = []
    for value in values:
        if isinstance(value, list):
            found += _arrays(value)
        elif value is not None:
            found.append(np.asarray(value))
    return found


def _f64(array: Array) -> Array:
    return array.astype(np.float64)


def _one_line(text: str) -> str:
    return " ".join(text.split())
