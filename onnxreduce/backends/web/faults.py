"""What went wrong in the page, told from its answer: the candidate's fault, or the page's?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import onnx

NO_PAGE = "no page"
"""The fault of a browser that worked before, and cannot be had any more."""

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
    """Whether an answer may be the page's fault, so that a fresh page should be asked."""
    if header["ok"]:
        return False
    if "fault" in header or header.get("healthy") is False:
        return True
    message = str(header.get("message", ""))
    return bool(_POISONED.search(message) or _ABORTED.search(message))


class Record:
    """The suspicious answers to one case: whose fault is it?

    A fault is the case's own if fresh browsers show the same one `again` times in a row; a hang,
    which is costly, once. One that the case cannot have caused never is.
    """

    def __init__(self, again: int, worked: bool) -> None:
        self._again = again
        self._worked = worked
        self._seen: list[tuple[str, str]] = []
        self._foreign = False

    def add(self, header: Mapping[str, Any]) -> None:
        fault = str(header.get("fault", ""))
        self._seen.append((fault, "" if fault else message(header)))
        # A browser that had a device and lost it for good, or does not start any more.
        self._foreign = fault == NO_PAGE or (self._worked and no_device(header))

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def hung(self) -> bool:
        """Whether the last fault was that the time was over."""
        return self._seen[-1][0] in ("timeout", "page hung")

    @property
    def convincing(self) -> bool:
        """Whether the last fault must be the case's."""
        if self._foreign:
            return False
        needed = 1 + (min(1, self._again) if self.hung else self._again)
        last = self._seen[-needed:]
        return len(last) == needed and len(set(last)) == 1

    @property
    def hopeless(self) -> bool:
        """Whether so many different faults came that asking again is in vain."""
        return len(self._seen) >= 4 * (1 + self._again)

    def __str__(self) -> str:
        kinds = dict.fromkeys(fault or said for fault, said in self._seen)
        return f"{len(self._seen)} faults for one model: {', '.join(kinds)}"


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
