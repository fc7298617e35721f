"""How to reduce: the options of the command line and of `onnxreduce.reduce`, one for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreduce.errors import UsageError

LEAST = {
    "seed": 0,
    "timeout": 1e-3,
    "tries": 1,
    "confirm": 0,
    "cpu_time": 1e-3,
    "memory": 1,
    "jobs": 1,
    "max_seconds": 1e-3,
    "max_calls": 1,
    "patience": 1,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a reduction.

    Attributes:
        inputs: an ``.npz`` file or a test-data directory; ``None``: beside the model, else made.
        output: directory for the artefacts; ``None``: nothing is left on disk.
        settings: keyword parameters for the oracle (``--set``), as text.
        dims: sizes of symbolic dims for made-up inputs (``--dim``).
        seed: of made-up inputs.
        timeout: seconds for one question; ``None``: ten times the first one, at least 10.
        tries, confirm: for flaky oracles, see `onnxreduce.oracle.judge`.
        error: choose tries and confirm for this bound on a wrong verdict, from the oracle's answers
            about the original and about a model that cannot show the bug.
        cpu_time: seconds of processor time that the oracle's process tree may take for one
            question; ``None``: no limit.
        memory: bytes that it may hold; ``None``: no limit.
        jobs: how many questions are asked at a time; ``None``: what suits the oracle, at most the
            number of cores. Any number leads to the same result.
        dask: address of a Dask scheduler, on whose workers the oracle runs.
        max_seconds, max_calls: budgets; the best so far is the result when one is used up.
        patience: stop when so many candidates in a row were refused.
        cuts: may values inside the model become inputs?
        scrub: at the end, replace weights, inputs and names as far as the bug survives.
        resume: go on with the run that left `output`.
        force: write into an `output` that exists; with `resume`, go on from the best so far also
            when the oracle has changed since.
    """

    inputs: Path | None = None
    output: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    timeout: float | None = None
    tries: int = 1
    confirm: int = 0
    error: float | None = None
    cpu_time: float | None = None
    memory: int | None = None
    jobs: int | None = None
    dask: str | None = None
    max_seconds: float | None = None
    max_calls: int | None = None
    patience: int | None = None
    cuts: bool = True
    scrub: bool = False
    resume: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UsageError(f"{name} must be at least {least}, not {value}")
        for name in ("inputs", "output"):
            path = getattr(self, name)
            if path is not None:
                # Absolute, since an oracle in this process may change the directory.
                object.__setattr__(self, name, Path(path).absolute())
