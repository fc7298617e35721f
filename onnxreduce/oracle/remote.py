"""What runs on the workers of a cluster: the oracle, warm, on models that arrive in parts.

Only plain data comes here. The large tensors are arguments of their own, so the cluster brings
each of them to a worker once, however many candidates share it.
"""

from __future__ import annotations

import queue
import tempfile
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxreduce.oracle.loading import OracleSource
from onnxreduce.oracle.runners import Limits, Runner

INLINE = 1 << 30
"""Bytes of tensors above which they go into a file beside the model."""


@dataclass(frozen=True)
class Task:
    """One call of a `Runner`'s method.

    Attributes:
        method: ``ask``, ``suspects``, ``hold`` or ``identity``.
        source, content: the oracle, and its file for a machine that does not have it.
        token: names the caller, who may give up.
        fresh: in a fresh process?
        model, inputs: the files' content; the model without its large tensors.
        places: which of the model's initializers those are.
    """

    method: str
    source: OracleSource
    content: bytes
    token: str
    limits: Limits
    fresh: bool = False
    model: bytes = b""
    inputs: bytes = b""
    places: tuple[int, ...] = ()


_idle: dict[str, queue.LifoQueue[Runner]] = defaultdict(queue.LifoQueue)
_busy: dict[str, Runner] = {}
_lock = threading.Lock()


def perform(task: Task, tensors: Sequence[bytes]) -> Any:
    """Calls the method; raises what it raises."""
    with tempfile.TemporaryDirectory(prefix="onnxreduce-") as name:
        arguments = [*_write(task, tensors, Path(name)), task.limits] if task.model else []
        shelf = _idle[task.source.fingerprint()]
        with _lock:
            runner = shelf.get_nowait() if not shelf.empty() else _open(task)
            _busy[task.token] = runner
        try:
            if task.fresh:
                runner.restart()
            return getattr(runner, task.method)(*arguments)
        finally:
            with _lock:
                del _busy[task.token]
            runner.resume()
            shelf.put(runner)


def give_up(token: str) -> None:
    """Kills what a caller is waiting for."""
    with _lock:
        runner = _busy.get(token)
        if runner:
            runner.interrupt()


def end() -> None:
    """Ends the processes of runners that are idle."""
    for shelf in _idle.values():
        while not shelf.empty():
            shelf.get_nowait().close()


def _open(task: Task) -> Runner:
    source = task.source
    if not source.path.exists() and not source.module:
        folder = Path(tempfile.mkdtemp(prefix="oracle-"))
        path = folder / source.path.name
        path.write_bytes(task.content)
        path.chmod(0o755)
        command = tuple(str(path) if p == str(source.path) else p for p in source.command)
        source = replace(source, path=path, command=command)
    return source.open()


def _write(task: Task, tensors: Sequence[bytes], folder: Path) -> tuple[Path, Path]:
    import onnx

    path, inputs = folder / "model.onnx", folder / "inputs.npz"
    inputs.write_bytes(task.inputs)
    if not tensors:
        path.write_bytes(task.model)
        return path, inputs
    model = onnx.ModelProto.FromString(task.model)
    for place, content in zip(task.places, tensors, strict=True):
        model.graph.initializer[place].raw_data = content
    large = sum(map(len, tensors)) > INLINE
    onnx.save(model, path, save_as_external_data=large, location="model.onnx.data")
    return path, inputs
