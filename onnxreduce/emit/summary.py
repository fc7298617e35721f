"""``summary.json``: the figures of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onnxreduce.emit.privacy import privacy
from onnxreduce.emit.secret import place
from onnxreduce.files import write_atomically
from onnxreduce.result import Result, describe


def summary(result: Result) -> dict[str, Any]:
    """The content of ``summary.json``."""
    return {
        "original": describe(result.original),
        "reduced": describe(result.reduced),
        "oracle_calls": result.oracle_calls,
        "cache_hits": result.cache_hits,
        "invalid": result.invalid,
        "skipped": result.skipped,
        "accepted": result.accepted,
        "seconds": round(result.seconds, 3),
        "oracle_seconds": round(result.oracle_seconds, 3),
        "one_minimal": result.one_minimal,
        "confirmed": result.confirmed,
        "verdict": {
            "outcome": result.verdict.outcome.value,
            "detail": result.verdict.detail,
            "signature": result.verdict.signature,
        },
        "stopped_by": result.stopped_by,
        "notes": list(result.notes),
        "settings": dict(result.settings),
        "digest": result.reduced.digest,
        "near_miss": _near_miss(result),
        "sides": [
            {"role": s.role, "spec": place(result, s.spec), "version": s.version, "error": s.error}
            for s in result.sides
        ],
        "privacy": privacy(result),
    }


def _near_miss(result: Result) -> dict[str, Any] | None:
    if result.near_miss is None or result.scrubbed is not None:
        return None
    miss = result.near_miss
    return {"edit": miss.edit, "changes": list(miss.changes), "detail": miss.verdict.detail}


def emit(result: Result, directory: Path) -> None:
    text = json.dumps(summary(result), indent=2, ensure_ascii=False)
    write_atomically(directory / "summary.json", (text + "\n").encode())
