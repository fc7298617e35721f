"""What can be said about a web backend: ``web@VERSION:PROVIDER,key=value,...``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from onnxreduce.backends.spec import FLAG, Option, Spec, flag
from onnxreduce.errors import UsageError

N = TypeVar("N", int, float)

PROVIDERS = {
    "wasm": "the CPU, by WebAssembly",
    "webgpu": "WebGPU: JSEP in most bundles, the native provider in ort.webgpu and ort.jspi",
    "webgl": "WebGL2; in the bundles ort.all and ort.webgl",
    "webnn-cpu": "WebNN on the CPU",
    "webnn-gpu": "WebNN on the GPU",
    "webnn-npu": "WebNN on an NPU",
}
DEFAULT_VERSION = "1.30.0"
DEFAULT_BUNDLE = "ort.all.min.mjs"
_LEVELS = {
    "disable_all": "disabled",
    "disabled": "disabled",
    "basic": "basic",
    "enable_basic": "basic",
    "extended": "extended",
    "enable_extended": "extended",
    "layout": "layout",
    "enable_layout": "layout",
    "all": "all",
    "enable_all": "all",
}

KNOWN: Mapping[str, Option] = {
    **{name: Option(text, "", FLAG) for name, text in PROVIDERS.items()},
    "bundle": Option("file in dist/, or its short name such as webgpu", DEFAULT_BUNDLE),
    "dist": Option("folder with the bundles, instead of a download from npm"),
    "threads": Option("threads of wasm; 1 adds up in the same order every time", "1"),
    "opt": Option("graph optimisation level (the runtime's own: all)", "", (*_LEVELS,)),
    "sessions": Option("answer from the N-th session; those before ran and were released", "1"),
    "runs": Option("answer from the N-th run of a session", "1"),
    "layout": Option("preferredLayout of webgpu", "", ("NCHW", "NHWC")),
    "fresh": Option("every case in a new worker, nothing kept alive", "false", FLAG),
    "main": Option("run on the page's main thread, not in a worker", "false", FLAG),
    "timeout": Option("seconds for one case", "120"),
    "retries": Option(
        "fresh browsers in which a fault must come again before it counts as the model's", "2"
    ),
    "browser": Option(
        "executable to launch, or sparticuz for a Chromium from npm in which WebNN works "
        "(default: an installed Chromium, Chrome or Edge)"
    ),
    "flags": Option("more command-line switches for it, joined by +"),
    "headed": Option("show its window", "false", FLAG),
    "cdp": Option("debugging URL of a browser or an Electron app that runs already"),
    "agent": Option("wait for a browser that is opened by hand", "false", FLAG),
    "listen": Option(
        "address at which the agent's page is served; any but this machine's own opens it to "
        "others, and WebGPU wants adb reverse or ssh -R instead",
        "127.0.0.1",
    ),
    "port": Option("its port (default: any that is free)", "0"),
    "wait": Option("seconds to wait for a browser to open the agent's URL", "240"),
}


@dataclass(frozen=True)
class Options:
    """Everything that distinguishes one web backend from another; see `KNOWN`."""

    provider: str
    version: str
    bundle: str
    dist: Path | None
    threads: int
    opt: str
    sessions: int
    runs: int
    layout: str
    fresh: bool
    main: bool
    timeout: float
    retries: int
    browser: str | None
    flags: tuple[str, ...]
    headed: bool
    cdp: str | None
    agent: bool
    listen: str
    port: int
    wait: float

    @property
    def static(self) -> bool:
        """Whether the provider runs only what has known shapes."""
        return self.provider == "webgl" or self.provider.startswith("webnn")

    @property
    def keeps_alive(self) -> bool:
        """Whether a dummy session must stay open between cases.

        The native WebGPU provider (bundles ``ort.webgpu`` and ``ort.jspi``) drops its device and
        its shader cache with the last session: a second conv costs 400 ms instead of 25 ms.
        """
        native = "webgpu" in self.bundle or "jspi" in self.bundle
        return self.provider == "webgpu" and native and not self.fresh

    def session_options(self) -> dict[str, Any]:
        """`InferenceSession.SessionOptions` as ONNX Runtime Web takes them."""
        name, _, device = self.provider.partition("-")
        provider = {"name": name}
        if device:
            provider["deviceType"] = device
        if self.layout:
            provider["preferredLayout"] = self.layout
        options: dict[str, Any] = {
            "executionProviders": [provider if provider.keys() > {"name"} else name]
        }
        if self.opt:
            options["graphOptimizationLevel"] = self.opt
        return options


def read(spec: Spec) -> Options:
    """The options of a spec whose keys and choices were checked against `KNOWN`.

    Raises:
        UsageError: no provider or several, a number that is none, or options that clash.
    """
    take = _Taker(spec)
    named = [name for name in PROVIDERS if take.flag(name)]
    if len(named) != 1:
        raise take.bad(f"name one execution provider of {', '.join(PROVIDERS)}")
    options = Options(
        provider=named[0],
        version=spec.version or DEFAULT_VERSION,
        bundle=bundle_name(take.text("bundle")),
        dist=Path(take.text("dist")).expanduser() if take.text("dist") else None,
        threads=take.number("threads", int),
        opt=_LEVELS.get(take.text("opt"), ""),
        sessions=take.number("sessions", int),
        runs=take.number("runs", int),
        layout=take.text("layout"),
        fresh=take.flag("fresh"),
        main=take.flag("main"),
        timeout=take.number("timeout", float),
        retries=take.number("retries", int, least=0),
        browser=take.text("browser") or None,
        flags=tuple(part for part in take.text("flags").split("+") if part),
        headed=take.flag("headed"),
        cdp=take.text("cdp") or None,
        agent=take.flag("agent"),
        listen=take.text("listen"),
        port=take.number("port", int, least=0),
        wait=take.number("wait", float),
    )
    _check(options, take)
    return options


def bundle_name(value: str) -> str:
    """The file name of a bundle: ``webgpu`` and ``ort.webgpu`` mean ``ort.webgpu.min.mjs``."""
    if value.endswith(".mjs"):
        return value
    stem = value if value == "ort" or value.startswith("ort.") else f"ort.{value}"
    return f"{stem}.min.mjs"


class _Taker:
    """Reads options of one spec and words the complaints."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def text(self, key: str) -> str:
        return self.spec.options.get(key, KNOWN[key].default)

    def flag(self, key: str) -> bool:
        return flag(self.text(key) or "false", f"backend '{self.spec}': {key}")

    def number(self, key: str, kind: Callable[[str], N], least: float = 1e-3) -> N:
        try:
            number = kind(self.text(key))
        except ValueError:
            number = kind("-1")
        if not number >= least:
            raise self.bad(f"{key} must be a positive number, not '{self.text(key)}'")
        return number

    def bad(self, text: str) -> UsageError:
        return UsageError(f"backend '{self.spec}': {text}")


def _check(options: Options, take: _Taker) -> None:
    sources = [name for name in ("cdp", "agent", "browser") if getattr(options, name)]
    if len(sources) > 1:
        raise take.bad(f"{' and '.join(sources)} exclude each other")
    if options.listen != KNOWN["listen"].default and not options.agent:
        raise take.bad("listen is an option of agent alone")
    if options.layout and options.provider != "webgpu":
        raise take.bad("layout is an option of webgpu alone")
    if options.main and options.agent:
        raise take.bad("a page opened by hand cannot be freed from a hang on its main thread")
    if not re.fullmatch(r"[\w-][\w.-]*\.mjs", options.bundle):
        raise take.bad(f"bundle is the name of a file in dist/, not '{options.bundle}'")
