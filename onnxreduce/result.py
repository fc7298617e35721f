"""What a reduction ends with; artefacts are made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreduce.case import Case, InputValue, graphs, tensors
from onnxreduce.nearmiss import NearMiss
from onnxreduce.scrub import Scrubbed
from onnxreduce.sides import Side
from onnxreduce.tensors import nbytes
from onnxreduce.used import OracleUsed
from onnxreduce.verdict import Verdict


@dataclass(frozen=True)
class Result:
    """A finished (or interrupted) reduction.

    Attributes:
        original, reduced: the first and the last case.
        verdict: the oracle's last word on `reduced`.
        outputs: what the side that is trusted computes for `reduced`, by output name: the
            oracle's expected side, else the trusted backend; ``None`` when neither runs it.
        oracle_calls, cache_hits, invalid, skipped, accepted: counts of candidates.
        seconds, oracle_seconds: wall time of the whole run, and inside the oracle.
        one_minimal: a whole round of every pass changed nothing.
        confirmed: the final case was found interesting again in a fresh process.
        stopped_by: ``None``, or what ended the run early: ``max-seconds``, ``max-calls``,
            ``interrupt``.
        notes: what the user should know, one line each.
        settings: how the oracle was asked: its name and parameters, tries, confirm, timeout.
        directory: where the artefacts are, if anywhere.
        oracle: what the oracle is, for whoever reads or repeats the result.
        sides: what the backends that the oracle compares make of `reduced`; empty for an oracle
            that names none.
        near_miss: the closest candidate without the bug; ``None`` when there was none.
        inputs_made_up: the original's inputs were made from its signature.
        scrubbed: what was asked of `onnxreduce.scrub` and came of it; ``None``: not asked.
    """

    original: Case
    reduced: Case
    verdict: Verdict
    outputs: Mapping[str, InputValue] | None
    oracle_calls: int
    cache_hits: int
    invalid: int
    skipped: int
    accepted: int
    seconds: float
    oracle_seconds: float
    one_minimal: bool
    confirmed: bool
    stopped_by: str | None
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    directory: Path | None = None
    oracle: OracleUsed = field(default_factory=lambda: OracleUsed("a function"))
    sides: tuple[Side, ...] = ()
    near_miss: NearMiss | None = None
    inputs_made_up: bool = False
    scrubbed: Scrubbed | None = None


def describe(case: Case) -> dict[str, Any]:
    """The figures of ``summary.json`` for one case."""
    graph = case.model.graph
    inputs = [v for v in graph.inputs if v.name not in graph.initializers]
    operators = Counter(
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        for each in graphs(case.model)
        for node in each
    )
    return {
        "nodes": case.size.nodes,
        "inputs": len(inputs),
        "outputs": len(graph.outputs),
        "initializers": len(graph.initializers),
        "elements": case.size.elements,
        "input_elements": sum(_elements(case.inputs.get(v.name or "")) for v in inputs),
        "attributes": case.size.attributes,
        "bytes": sum(map(nbytes, tensors(case.model))),
        "ops": dict(sorted(operators.items())),
    }


def _elements(value: InputValue) -> int:
    if value is None:
        return 0
    return sum(array.size for array in value) if isinstance(value, list) else value.size
