"""What went wrong in the page, told from its answer: the candidate's fault, or the page's?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import onnx

Kind = Literal["load", "run", "crash", "timeout", "unsupported"]

_UNSUPPORTED = re.compile(
    r"no available backend found|backend not found|Failed to get GPU adapter|"
    r"no tensor of type|unsupported data ?type|WebNN is not supported|"
    r"Failed to create (?:a )?WebNN context|WebGPU is not supported",
    re.IGNORECASE,
)
_NO_DEVICE = re.compile(
    r"Failed to get GPU adapter|no available (?:backend|adapter)", re.IGNORECASE
)
_POISONED = re.compile(
    r"another WebGPU EP inference session is being created|Session already started|"
    r"reading 'destroy'|Session mismatch|previous call .*(?:failed|not finished)",
    re.IGNORECASE,
)
_ABORTED = re.compile(
    r"\bAborted\(|unreachable|memory access out of bounds|table index is out of bounds|"
    r"null function or function signature mismatch|indirect call",
    re.IGNORECASE,
)
_MEMORY = re.compile(
    r"out of memory|bad_alloc|exceeds the max buffer size|SafeInt|Array buffer allocation failed|"
    r"Invalid typed array length|could not be allocated|OOM\b",
    re.IGNORECASE,
)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ ")
_IDLE_TALK = re.compile(r"Unknown CPU vendor|Some nodes were not assigned|Rerunning with verbose")
_TYPE_NUMBER = re.compile(r"unsupported data type: (\d+)")
_NUMBER = re.compile(r"\(a bare number, -?\d+\)")


def suspicious(header: Mapping[str, Any]) -> bool:
    """Whether an answer may be the page's fault, so that a fresh page should be asked.

    A timeout is believed of a page that had run nothing before; a crash never is, the first time.
    """
    if header["ok"]:
        return False
    if header.get("fault") == "timeout":
        return bool(header.get("warm", True))
    if "fault" in header or header.get("healthy") is False:
        return True
    message = str(header.get("message", ""))
    return bool(_POISONED.search(message) or _ABORTED.search(message))


def no_device(header: Mapping[str, Any]) -> bool:
    """Whether the browser had no device to give, as after too many crashes of its GPU process."""
    return bool(_NO_DEVICE.search(str(header.get("message", ""))))


def kind(header: Mapping[str, Any]) -> Kind:
    """The kind of `BackendError` that a failed answer is."""
    message = str(header.get("message", ""))
    fault = header.get("fault")
    if fault in ("timeout", "page hung"):
        return "timeout"
    if fault or _ABORTED.search(message):
        return "crash"
    if header.get("stage") == "import" or _UNSUPPORTED.search(message):
        return "unsupported"
    return "run" if header.get("stage") in ("run", "feed", "release") else "load"


def message(header: Mapping[str, Any]) -> str:
    """One line; the same for two runs of the same failure."""
    text = _NUMBER.sub("(a bare number)", " ".join(str(header.get("message", "")).split()))
    text = _TYPE_NUMBER.sub(_with_type_name, text)
    if _MEMORY.search(text):
        text = f"out of memory: {text}"
    return f"{text} [while: {header.get('stage', 'unknown')}]"


def _with_type_name(match: re.Match[str]) -> str:
    names = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
    return f"{match[0]} ({names.get(int(match[1]), 'unknown')})"


def notes(header: Mapping[str, Any]) -> tuple[str, ...]:
    """What the console said, without colours, times and what every session says anyway."""
    lines = (_STAMP.sub("", _COLOUR.sub("", line)) for line in header.get("console", ()))
    return tuple(dict.fromkeys(line for line in lines if not _IDLE_TALK.search(line)))
