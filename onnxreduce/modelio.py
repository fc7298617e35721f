"""Model files: reading them with care, and writing candidates without copying weights."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import onnx
import onnx_ir as ir

from onnxreduce.case import Case, declared_inputs
from onnxreduce.encoding import tag, varint
from onnxreduce.errors import Unwritable, UsageError
from onnxreduce.files import replacing
from onnxreduce.inputs import flat_inputs
from onnxreduce.modelread import EXTERNAL, SOURCE, load_model
from onnxreduce.npz import write_npz
from onnxreduce.proto import PROTOBUF_LIMIT, Payload, hollow
from onnxreduce.tensors import payload, tensor_digest

__all__ = [
    "Store",
    "declared_inputs",
    "inputs_beside",
    "is_external",
    "load_model",
    "save_model",
    "to_proto",
]

_CHUNK = 1 << 24

IDLE = 2
"""Tensors that no candidate uses may take so many times the room of the largest candidate."""


def is_external(model: ir.Model) -> bool:
    """Whether candidates should keep their weights outside the model file: the original does, or
    it is too large for one file to be handled quickly."""
    return bool(model.graph.meta.get(EXTERNAL)) or weight(Case(model, {})) > 1 << 30


def weight(case: Case) -> int:
    """Bytes of the tensors above 1 kB."""
    return sum(part.tensor.nbytes for part in case.payloads)


class Store:
    """A directory of candidate files for oracles.

    Args:
        directory: made when it does not exist. An inline candidate is ``<n>/model.onnx`` with
            ``<n>/inputs.npz``, an external one ``<n>.onnx`` with ``<n>.inputs.npz``.
        external: keep tensors outside the model files. Each distinct one is written once, under
            its digest, into ``pool/`` and candidates refer to it. ONNX refuses external data
            that is a link or lies above the model's folder, so the candidates share a folder.
    """

    def __init__(self, directory: Path, external: bool) -> None:
        self.directory = directory.absolute()
        self.external = external
        self.pool = self.directory / "pool"
        (self.pool if external else self.directory).mkdir(parents=True, exist_ok=True)
        self._numbers = itertools.count(1)
        self._pooled: dict[str, int] = {}
        self._used: dict[Path, list[str]] = {}
        self._held: Counter[str] = Counter()
        self._idle: OrderedDict[str, int] = OrderedDict()
        self._room = 0
        self._lock = threading.Lock()

    def write(self, case: Case) -> Path:
        """A new model file (absolute path), its inputs beside it; callable from several threads.

        Raises:
            Unwritable: as on a full disk.
        """
        path: Path | None = None
        try:
            path = self._new_file() if self.external else self._new_folder() / "model.onnx"
            with path.open("wb") as file:
                if self.external:
                    file.write(self._external(case, path))
                else:
                    write_inline(case, file)
            write_npz(inputs_beside(path), flat_inputs(case.inputs))
        except OSError as error:
            if path is not None:
                self.discard(path)
            raise Unwritable(
                f"a candidate cannot be written to {self.directory}: {error.strerror}"
            ) from error
        return path

    def discard(self, path: Path) -> None:
        """Remove a candidate that `write` made. Its pooled tensors stay for the next one, but for
        those that were used least recently, when they are too many."""
        if self.external:
            path.unlink(missing_ok=True)
            self._let_go(path)
            inputs_beside(path).unlink(missing_ok=True)
        else:
            shutil.rmtree(path.parent, ignore_errors=True)

    def _new_folder(self) -> Path:
        while True:
            folder = self.directory / str(next(self._numbers))
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder

    def _new_file(self) -> Path:
        while True:
            path = self.directory / f"{next(self._numbers)}.onnx"
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                continue
            return path

    def _external(self, case: Case, path: Path) -> bytes:
        proto = case.encoded.message()
        self._hold(case, path)
        for message, part in _places(proto, case.payloads):
            name = _pool_name(part.tensor)
            self._pool(name, part.tensor)
            _refer(message, f"pool/{name}", 0, part.tensor.nbytes)
        content: bytes = proto.SerializeToString(deterministic=True)
        return content

    def _hold(self, case: Case, path: Path) -> None:
        """From now on the candidate needs its tensors; as much room as it takes may lie idle."""
        sizes = {_pool_name(part.tensor): part.tensor.nbytes for part in case.payloads}
        with self._lock:
            self._room = max(self._room, IDLE * sum(sizes.values()))
            self._used[path] = list(sizes)
            self._held.update(sizes.keys())
            for name in sizes:
                self._idle.pop(name, None)

    def _let_go(self, path: Path) -> None:
        with self._lock:
            for name in self._used.pop(path, ()):
                self._held[name] -= 1
                if not self._held[name]:
                    del self._held[name]
                    file = self.pool / name
                    self._idle[name] = file.stat().st_size if file.exists() else 0
            while self._idle and sum(self._idle.values()) > self._room:
                name, _ = self._idle.popitem(last=False)
                (self.pool / name).unlink(missing_ok=True)

    def _pool(self, name: str, tensor: ir.TensorProtocol) -> None:
        path = self.pool / name
        # Only what this process wrote and nobody has changed: an oracle may have.
        if path.exists() and self._pooled.get(name) == path.stat().st_mtime_ns:
            return
        with tempfile.NamedTemporaryFile(dir=self.pool, prefix=".", delete=False) as file:
            try:
                _stream(tensor, file)
            except BaseException:
                Path(file.name).unlink()
                raise
        Path(file.name).chmod(0o444)
        Path(file.name).replace(path)
        self._pooled[name] = path.stat().st_mtime_ns


def _pool_name(tensor: ir.TensorProtocol) -> str:
    return f"{tensor_digest(tensor)}.bin"


def inputs_beside(model: Path) -> Path:
    """The file of inputs that a store writes with a model file."""
    name = "inputs.npz" if model.name == "model.onnx" else f"{model.stem}.inputs.npz"
    return model.with_name(name)


def _places(
    proto: onnx.ModelProto, payloads: list[Payload]
) -> Iterator[tuple[onnx.TensorProto, Payload]]:
    """The message in a copy of a skeleton that each payload belongs to."""
    inner = [part for part in payloads if part.index is None]
    for part in payloads:
        if part.index is not None:
            yield proto.graph.initializer[part.index], part
    if inner:
        yield from zip(list(hollow(proto)), inner, strict=True)


def to_proto(case: Case) -> onnx.ModelProto:
    """The whole model as one message, its tensors copied into it. Above 2 GB go by path."""
    proto = case.encoded.message()
    for message, part in _places(proto, case.payloads):
        message.raw_data = bytes(payload(part.tensor))
    return proto


def _refer(message: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    message.data_location = onnx.TensorProto.EXTERNAL
    for key, content in (("location", location), ("offset", offset), ("length", length)):
        message.external_data.add(key=key, value=str(content))


def _stream(tensor: ir.TensorProtocol, file: IO[bytes]) -> None:
    """Write a tensor's bytes piece by piece, so that a mapped one never fills the memory."""
    content = payload(tensor)
    for start in range(0, len(content), _CHUNK):
        file.write(content[start : start + _CHUNK])


def write_inline(case: Case, file: IO[bytes]) -> None:
    """Write a model with its tensors inside, each copied straight from its array.

    The wire format allows it: a message's length is known before its content is assembled, so the
    graph is written as its own fields, then one initializer after the other (protobuf encoding,
    https://protobuf.dev/programming-guides/encoding/).
    """
    if not case.payloads:
        file.write(case.encoded.content)
        return
    rest = case.encoded.message()
    inner = [part for part in case.payloads if part.index is None]
    if inner:
        for message, part in zip(list(hollow(rest)), inner, strict=True):
            message.raw_data = bytes(payload(part.tensor))
    tensors = {p.index: p.tensor for p in case.payloads if p.index is not None}
    heads: list[bytes] = []
    bodies: list[memoryview] = []
    for index, message in enumerate(rest.graph.initializer):
        head = message.SerializeToString(deterministic=True)
        body = memoryview(b"")
        if index in tensors:
            body = payload(tensors[index])
            head += tag(onnx.TensorProto.RAW_DATA_FIELD_NUMBER) + varint(len(body))
        length = len(head) + len(body)
        heads.append(tag(onnx.GraphProto.INITIALIZER_FIELD_NUMBER) + varint(length) + head)
        bodies.append(body)
    rest.graph.ClearField("initializer")
    graph = rest.graph.SerializeToString(deterministic=True)
    rest.ClearField("graph")
    total = len(graph) + sum(map(len, heads)) + sum(map(len, bodies))
    file.write(rest.SerializeToString(deterministic=True))
    file.write(tag(onnx.ModelProto.GRAPH_FIELD_NUMBER) + varint(total) + graph)
    for head, body in zip(heads, bodies, strict=True):
        file.write(head)
        file.write(body)


def save_model(model: ir.Model | Case, path: Path) -> None:
    """Write a model that needs no other file, or, above 2 GB, one file of data beside it.

    What was there stays whole until the new content is on the disk.

    Raises:
        UsageError: `path` is the file that the model was read from.
        Unwritable: it cannot be written.
    """
    case = model if isinstance(model, Case) else Case(model, {})
    if case.model.graph.meta.get(SOURCE) == str(path.resolve()):
        raise UsageError(f"{path} is the input model, which is never written to: name another file")
    slack = 1 << 20
    size = weight(case) + len(case.encoded.content) + slack
    try:
        if size < PROTOBUF_LIMIT:
            with replacing(path) as temporary, temporary.open("wb") as file:
                write_inline(case, file)
        else:
            _save_external(case, path)
    except OSError as error:
        raise Unwritable(f"{path} cannot be written: {error.strerror}") from error


def _save_external(case: Case, path: Path) -> None:
    data = path.with_name(path.name + ".data")
    proto = case.encoded.message()
    written: dict[str, int] = {}
    with replacing(data) as temporary, temporary.open("wb") as file:
        for message, part in _places(proto, case.payloads):
            digest = tensor_digest(part.tensor)
            if digest not in written:
                # Runtimes map tensors straight from the file: keep them aligned.
                file.write(bytes(-file.tell() % 64))
                written[digest] = file.tell()
                _stream(part.tensor, file)
            _refer(message, data.name, written[digest], part.tensor.nbytes)
    with replacing(path) as temporary:
        temporary.write_bytes(proto.SerializeToString(deterministic=True))
