"""Oracles on a cluster of machines, by way of Dask (``--dask``; the extra ``dask``).

A `RemoteRunner` is a runner like any other: the judge, the cache and the search do not know where
their questions are answered. Deadlines, and the killing of an oracle's processes, stay with the
worker that runs it.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import OrderedDict
from pathlib import Path
from typing import Any, Self

import onnx

from onnxreduce.errors import UsageError
from onnxreduce.oracle import remote
from onnxreduce.oracle.loading import OracleSource
from onnxreduce.oracle.runners import Interrupted, Limits
from onnxreduce.process import WorkerError
from onnxreduce.verdict import Verdict

LARGE = 4096
"""Bytes of a tensor from which it is sent apart."""

KEPT = 4096
"""Tensors that the cluster holds for candidates to come."""

CONNECT_SECONDS = 10.0


class Cluster:
    """A connection to a Dask scheduler.

    Args:
        address: such as ``tcp://host:8786``.

    Raises:
        UsageError: Dask is not installed, or there is no scheduler or worker.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise UsageError(
                "--dask needs the extra: pip install 'onnxreduce[dask]', here and on the workers"
            ) from None
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
            threads = self._client.nthreads()
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(f"--dask {address}: no scheduler answers there ({error})") from error
        self.jobs = sum(threads.values())
        if not self.jobs:
            raise UsageError(f"--dask {address}: the scheduler has no workers")
        self._tensors: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def submit(self, task: remote.Task, parts: list[Any]) -> Any:
        """A Dask future of what the task gives."""
        return self._client.submit(remote.perform, task, parts, pure=False)

    def tensor(self, content: bytes) -> Any:
        """A tensor's bytes on the cluster, sent there when they are new."""
        digest = hashlib.sha256(content).hexdigest()
        with self._lock:
            if digest not in self._tensors:
                self._tensors[digest] = self._client.scatter(content, hash=True)
            self._tensors.move_to_end(digest)
            if len(self._tensors) > KEPT:
                self._tensors.popitem(last=False)
            return self._tensors[digest]

    def give_up(self, token: str) -> None:
        """Has the processes killed that a caller waits for, wherever they are."""
        self._client.run(remote.give_up, token, wait=False)

    def close(self) -> None:
        self._client.run(remote.end)
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteRunner:
    """Asks an oracle on some worker of a cluster."""

    def __init__(self, cluster: Cluster, source: OracleSource) -> None:
        self._cluster = cluster
        self._source = source
        self._content = source.path.read_bytes()
        self._token = uuid.uuid4().hex
        self._fresh = False
        self._interrupted = False
        self._stirred = threading.Event()

    def ask(self, model_path: Path, inputs_path: Path, limits: Limits) -> Verdict:
        verdict: Verdict = self._call("ask", limits, model_path, inputs_path)
        return verdict

    def suspects(self, model_path: Path, inputs_path: Path, limits: Limits) -> list[str]:
        names: list[str] = self._call("suspects", limits, model_path, inputs_path)
        return names

    def hold(self, model_path: Path, inputs_path: Path, limits: Limits) -> dict[str, Any]:
        held: dict[str, Any] = self._call("hold", limits, model_path, inputs_path)
        self._source = self._source.holding(held)
        return held

    def identity(self) -> str:
        return str(self._call("identity", Limits()))

    def restart(self) -> None:
        self._fresh = True

    def interrupt(self) -> None:
        self._interrupted = True
        self._stirred.set()

    def resume(self) -> None:
        self._interrupted = False
        self._stirred.clear()

    def close(self) -> None:
        """The workers' processes end with the cluster's connection."""

    def _call(self, method: str, limits: Limits, *files: Path) -> Any:
        parts: list[Any] = []
        content: dict[str, Any] = {}
        if files:
            model, places, tensors = _split(files[0])
            parts = [self._cluster.tensor(tensor) for tensor in tensors]
            content = {"model": model, "inputs": files[1].read_bytes(), "places": places}
        fresh, self._fresh = self._fresh, False
        token = f"{self._token} {uuid.uuid4().hex}"
        task = remote.Task(
            method, self._source, self._content, token, limits, fresh=fresh, **content
        )
        if self._interrupted:
            raise Interrupted
        future = self._cluster.submit(task, parts)
        future.add_done_callback(lambda _: self._stirred.set())
        self._stirred.wait()
        if self._interrupted:
            future.cancel()
            self._cluster.give_up(token)
            raise Interrupted
        self._stirred.clear()
        try:
            return future.result()
        except (WorkerError, UsageError):
            raise
        except Exception as error:  # Dask's own: above all, workers that died of the task
            raise WorkerError("crash", f"on the cluster: {type(error).__name__}") from error


def _split(path: Path) -> tuple[bytes, tuple[int, ...], list[bytes]]:
    """A model without its large initializers, which these are, and their bytes."""
    model = onnx.load(path, load_external_data=False)
    places: list[int] = []
    tensors: list[bytes] = []
    for place, tensor in enumerate(model.graph.initializer):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensors.append(_external(tensor, path.parent))
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
        elif len(tensor.raw_data) >= LARGE:
            tensors.append(bytes(tensor.raw_data))
            tensor.ClearField("raw_data")
        else:
            continue
        places.append(place)
    return bytes(model.SerializeToString()), tuple(places), tensors


def _external(tensor: onnx.TensorProto, folder: Path) -> bytes:
    where: dict[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    with (folder / where["location"]).open("rb") as file:
        file.seek(int(where.get("offset", 0)))
        return file.read(int(where["length"]) if "length" in where else -1)
