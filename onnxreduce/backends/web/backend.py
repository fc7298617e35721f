"""The backend: gives cases to a page and makes results or errors of its answers.

A page can lie, and a page can die. Whatever may be the page's fault and not the case's (a lost
device, a crash, an aborted wasm module, a hang, a rejection after which nothing works) is asked
again: of a fresh worker or page, then of fresh browsers. It is believed when they all show the
same, and the next case starts in a sound one.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import onnx
import onnx.parser

from onnxreduce.backends.base import Backend, BackendError, Info, Unreliable, Value
from onnxreduce.backends.expose import exposed, external_files
from onnxreduce.backends.spec import Option, Spec
from onnxreduce.backends.web import dist, faults, wire
from onnxreduce.backends.web.channel import Late, PageLost, browser_name
from onnxreduce.backends.web.link import AgentLink, BrowserLink, Link
from onnxreduce.backends.web.options import KNOWN, Options, read
from onnxreduce.backends.web.server import Blob
from onnxreduce.tensors import Array

START = 10.0
"""Seconds that a new worker has on top of a case's own, to load and compile the runtime."""
GRACE = 10.0
"""Seconds beyond a case's own time in which the page must have said that it is over."""

Header = dict[str, Any]


class WebBackend(Backend):
    """``web:webgpu``, ``web@1.23.2:webgl,bundle=ort.all.min.mjs``, ...

    The default bundle holds every provider, so that two of them are compared with the same CPU
    kernels behind them. WebGL refuses unknown dims in the inputs of a model, and WebNN leaves what
    depends on them to wasm: there they are set to the sizes of the tensors given.

    Its `notes` are what the browser's console and devices said during the last run. A shader that
    does not compile rejects nothing: the outputs are wrong, and this is the only trace.
    """

    OPTIONS: ClassVar[Mapping[str, Option]] = KNOWN

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.options = read(spec)
        self._dist, self._version = dist.find(
            self.options.version, self.options.bundle, self.options.dist
        )
        self._numbers = itertools.count(1)
        self._link: Link | None = None
        self._worked = False

    def version(self) -> str:
        client = self._connected().client
        runtime = f"onnxruntime-web {self._version} {self.options.bundle}"
        return f"{runtime}, {browser_name(client)}"

    def describe(self) -> str:
        client = self._connected().client
        device = client.get(self.options.provider)
        return f"{self.name} ({self.version()}{f', {device}' if isinstance(device, str) else ''})"

    def run(
        self, model_path: str, inputs: Mapping[str, Value], *, fresh: bool = False
    ) -> dict[str, Value]:
        """As in `Backend`.

        Args:
            model_path: external data is read from beside it.
            inputs: tensors only; ONNX Runtime Web knows no sequences and no bfloat16.
            fresh: in a worker that has run nothing before. A warm page can lie: confirm a final
                result this way.
        """
        _, outputs = self._judge(model_path, inputs, {"runs": self.options.runs}, fresh)
        return dict(outputs)

    def run_all(self, model_path: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """As in `Backend`; every exposed value is an output, so fusions across it are gone."""
        with exposed(model_path) as path:
            if self.options.provider == "webgl":
                _declare_shapes(path)  # it reads the dims of every output
            return self.run(path, inputs)

    def run_timed(
        self, model_path: str, inputs: Mapping[str, Value], repeats: int = 1
    ) -> list[float]:
        """As in `Backend`, by the page's clock: the run alone, in one session."""
        header, _ = self._judge(model_path, inputs, {"runs": repeats + 1}, fresh=False)
        return [milliseconds / 1000 for milliseconds in header["ms"]["runs"][-repeats:]]

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    @classmethod
    def probe(cls) -> list[Info]:
        from onnxreduce.backends.web.probe import probe

        return probe()

    def _judge(
        self, model_path: str, inputs: Mapping[str, Value], settings: Header, fresh: bool
    ) -> tuple[Header, dict[str, Array]]:
        tensors = _tensors(inputs, self.name)
        header, outputs = self._ask(model_path, tensors, settings, fresh)
        record = faults.Record(self.options.retries, self._worked)
        while faults.suspicious(header):
            record.add(header)
            self._recover(header, thorough=len(record) > 1)
            if record.convincing:
                break
            if record.hopeless:
                raise Unreliable(f"{self.name}: {record}; the last: {faults.message(header)}")
            # Twice the time after a hang: a busy machine is slow to start the fresh page.
            again = {**settings, "timeout": self.options.timeout * (2 if record.hung else 1)}
            header, outputs = self._ask(model_path, tensors, again, fresh=True)
        self.notes = faults.notes(header)
        if not header["ok"]:
            raise BackendError(faults.kind(header), faults.message(header), "\n".join(self.notes))
        self._worked = True
        return header, outputs

    def _ask(
        self, model_path: str, tensors: Mapping[str, Array], settings: Header, fresh: bool
    ) -> tuple[Header, dict[str, Array]]:
        """One answer of the page, or a header that says how the page failed to give one."""
        try:
            link = self._connected()
        except BackendError as error:
            if not self._worked:
                raise
            if self.options.agent:  # it waited long enough
                raise Unreliable(error.message) from error
            return {"ok": False, "fault": faults.NO_PAGE, "message": error.message}, {}
        fresh = fresh or self.options.fresh
        if fresh and self.options.main:
            link.reload()
        job = f"j{next(self._numbers)}"
        blobs, places = _blobs(job, model_path, tensors, self.options.static)
        order = {**self._order(model_path), **settings, **places, "id": job, "fresh": fresh}
        link.server.blobs.update(blobs)
        try:
            link.channel.send(order)
            answer = self._await(link, job, order["timeout"])
        except PageLost as lost:
            return {"ok": False, "fault": "page lost", "message": str(lost)}, {}
        except Late:
            text = f"the page hung for {order['timeout']:g} s"
            return {"ok": False, "fault": "page hung", "message": text}, {}
        finally:
            for name in blobs:
                link.server.blobs.pop(name, None)
        return wire.unpack(answer)

    def _await(self, link: Link, job: str, seconds: float) -> bytearray:
        try:
            grace = 0 if self.options.main else GRACE
            return link.channel.wait(job, seconds + START + grace)
        except Late:
            link.unhang()  # only a page that runs cases itself can hang
            return link.channel.wait(job, 5)

    def _order(self, model_path: str) -> Header:
        options = self.options
        return {
            "op": "run",
            "label": f"{options.provider}, {Path(model_path).name}",
            "main": options.main,
            "timeout": options.timeout,
            "start": START,
            "bundle": f"ort/{options.bundle}",
            "threads": options.threads,
            "session": options.session_options(),
            "sessions": options.sessions,
            "keep": options.keeps_alive,
            "dummy": "blob/dummy",
        }

    def _recover(self, header: Header, thorough: bool) -> None:
        """Replace what the fault has spoilt: the worker (the page does that), page or browser;
        the browser in any case where less did not help."""
        link, fault = self._link, header.get("fault")
        if link is None:
            return
        if thorough or faults.no_device(header):
            link.drop_browser()
        elif fault == "device lost":
            link.lost_device()
        elif fault in ("page lost", "page hung"):
            link.drop_page()

    def _connected(self) -> Link:
        """A link with a page at its other end."""
        if self._link is None:
            self._link = _link_for(self.options, self._dist, self.name)
            self._link.server.blobs["dummy"] = [_dummy()]
        self._link.connect()
        return self._link


def _link_for(options: Options, folder: Path, name: str) -> Link:
    if options.agent:
        return AgentLink(
            options, folder, name, lambda text: print(text, file=sys.stderr, flush=True)
        )
    return BrowserLink(options, folder)


@cache
def _dummy() -> bytes:
    """The model that shows whether a provider is well: four products."""
    text = '<ir_version: 8, opset_import: ["" : 13]> d (float[1,1,2,2] x) => (float[1,1,2,2] y) '
    return bytes(onnx.parser.parse_model(text + "{ y = Mul(x, x) }").SerializeToString())


def _tensors(inputs: Mapping[str, Value], name: str) -> dict[str, Array]:
    for key, value in inputs.items():
        if value is None or isinstance(value, list):
            raise BackendError("unsupported", f"{name}: input '{key}' is no tensor")
    return dict(inputs)  # type: ignore[arg-type]


def _blobs(
    job: str, model_path: str, tensors: Mapping[str, Array], pinned: bool
) -> tuple[dict[str, Blob], Header]:
    """What the server must hand out for a job, and the part of the order that says where it is."""
    path = Path(model_path)
    body: Blob = path
    external: list[str] = []
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:
        pinned = False  # whether it can be read is for the runtime to say
    else:
        external = external_files(model)
    if pinned:
        body = [_pin_inputs(model, tensors)]
    try:
        envelope = wire.pack({}, tensors)
    except TypeError as error:
        raise BackendError("unsupported", str(error)) from error
    blobs: dict[str, Blob] = {f"{job}-model": body, f"{job}-inputs": envelope}
    files = {f"{job}-data{i}": location for i, location in enumerate(external)}
    blobs.update({name: path.parent / location for name, location in files.items()})
    places = {
        "model": f"blob/{job}-model",
        "inputs": f"blob/{job}-inputs",
        "external": [{"url": f"blob/{name}", "path": place} for name, place in files.items()],
    }
    return blobs, places


def _pin_inputs(model: onnx.ModelProto, tensors: Mapping[str, Array]) -> bytes:
    """The model with the unknown dims of its inputs set to those of the tensors."""
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name in tensors and len(dims) == tensors[value.name].ndim:
            for dim, size in zip(dims, tensors[value.name].shape, strict=True):
                if not dim.HasField("dim_value"):
                    dim.dim_value = size
    return bytes(model.SerializeToString())


def _declare_shapes(path: str) -> None:
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    known = {value.name: value for value in model.graph.value_info}
    for output in model.graph.output:
        if not output.HasField("type") and output.name in known:
            output.CopyFrom(known[output.name])
    Path(path).write_bytes(model.SerializeToString())
