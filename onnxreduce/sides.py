"""The backends that an oracle compares: which they are, and what they make of the result.

Oracles say *that* the bug shows. A maintainer wants to see both sides, so they are run once more
on the reduced case, each in a process of its own, and told by version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreduce.backends import BackendError, backend_names, close_backends, warm_backend
from onnxreduce.backends.spec import Spec, parse_spec
from onnxreduce.case import InputValue
from onnxreduce.errors import UsageError
from onnxreduce.process import Worker, WorkerError

ROLES = ("expected", "actual", "slow", "fast", "backend")
"""Parameters by which oracles name backends."""

SECONDS = 120.0
"""For one side on the reduced case; a browser has to start in it."""


@dataclass(frozen=True)
class Side:
    """One backend and the reduced case.

    Attributes:
        role: the oracle's parameter, such as ``expected``.
        spec: of the backend.
        version: of its runtime; empty when it could not be asked.
        outputs: what it computes; ``None`` when it fails.
        error: how it fails; empty when it does not.
    """

    role: str
    spec: Spec
    version: str
    outputs: Mapping[str, InputValue] | None
    error: str = ""


def backend_specs(oracle: str, parameters: Mapping[str, Any]) -> dict[str, Spec]:
    """The backends that an oracle's parameters name, by role."""
    if oracle == "webgpu_vs_wasm":
        return _web_pair(**parameters)
    found = {}
    for role in ROLES:
        text = parameters.get(role)
        if isinstance(text, str) and text:
            try:
                spec = parse_spec(text)
            except UsageError:
                continue
            if spec.name in backend_names():
                found[role] = spec
    return found


def _web_pair(
    version: str = "", bundle: str = "", gpu: str = "webgpu", **others: object
) -> dict[str, Spec]:
    which = {"bundle": bundle} if bundle else {}
    return {
        "expected": Spec("web", version or None, {"wasm": "true", **which}),
        "actual": Spec("web", version or None, {gpu: "true", **which}),
    }


def measure(
    specs: Mapping[str, Spec], model: Path, inputs: Mapping[str, InputValue]
) -> tuple[Side, ...]:
    """Runs every side on a model file. A side that waits for a person is left out."""
    return tuple(
        _measured(role, spec, model, inputs)
        for role, spec in specs.items()
        if not {"agent", "cdp"} & spec.options.keys()
    )


def _measured(role: str, spec: Spec, model: Path, inputs: Mapping[str, InputValue]) -> Side:
    with Worker() as worker:
        version = ""
        try:
            version = str(worker.call(f"{__name__}:begin", str(spec), timeout=SECONDS))
            outputs, error = worker.call(
                f"{__name__}:run", str(spec), str(model), dict(inputs), timeout=SECONDS
            )
        except WorkerError as failure:
            outputs, error = None, f"{failure.kind}: {failure.message}"
    return Side(role, spec, version, outputs, error)


def begin(spec: str) -> str:
    """In the worker: opens the backend; its version."""
    return warm_backend(spec).version()


def run(
    spec: str, model: str, inputs: Mapping[str, InputValue]
) -> tuple[dict[str, InputValue] | None, str]:
    """In the worker: the outputs, or how the backend fails; closes it."""
    try:
        return warm_backend(spec).run(model, inputs), ""
    except BackendError as error:
        return None, str(error)
    finally:
        close_backends()
