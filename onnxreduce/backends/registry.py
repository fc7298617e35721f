"""Which backends there are, and how one is opened.

The built-in ones are listed here by module so that none is imported before it is asked for;
others come through the entry-point group ``onnxreduce.backends`` (name -> `Backend` subclass).
"""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import entry_points

from onnxreduce.backends.base import Backend, BackendError, Info
from onnxreduce.backends.spec import Spec, flag, parse_spec
from onnxreduce.errors import UsageError

GROUP = "onnxreduce.backends"

BUILTIN = {
    "ort": "onnxreduce.backends.ort:OrtBackend",
    "reference": "onnxreduce.backends.reference:ReferenceBackend",
    "web": "onnxreduce.backends.web:WebBackend",
    "openvino": "onnxreduce.backends.openvino:OpenVinoBackend",
    "plugin": "onnxreduce.backends.plugin:PluginBackend",
}

_warm: dict[str, Backend] = {}


def backend_names() -> list[str]:
    """Names that `open_backend` knows, built-in ones first."""
    return [*BUILTIN, *(e.name for e in entry_points(group=GROUP) if e.name not in BUILTIN)]


def backend_class(name: str) -> type[Backend]:
    """The class behind a name.

    Raises:
        UsageError: there is none of that name.
        BackendError: ``unsupported``: it cannot be imported here.
    """
    if name in BUILTIN:
        module, _, attribute = BUILTIN[name].partition(":")
        found = getattr(importlib.import_module(module), attribute)
    else:
        points = [e for e in entry_points(group=GROUP) if e.name == name]
        if not points:
            names = backend_names()
            near = difflib.get_close_matches(name, names, 1)
            hint = f" (did you mean '{near[0]}'?)" if near else ""
            raise UsageError(f"no backend '{name}'{hint}; there are: {', '.join(names)}")
        try:
            found = points[0].load()
        except Exception as error:
            raise BackendError(
                "unsupported", f"backend {name} ({points[0].value}) cannot be imported: {error}"
            ) from error
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise UsageError(f"backend '{name}' is no subclass of onnxreduce.backends.Backend")
    return found


def open_backend(spec: str | Spec) -> Backend:
    """A backend, ready to run models. Whoever opens it closes it.

    Every backend takes one more option, ``isolate``: run in a child process, so that a crash of
    the runtime is a `BackendError` of kind ``crash`` and not the end of this process.

    Raises:
        UsageError: a bad spec.
        BackendError: ``unsupported``: it cannot be used here; the message says what to do.
    """
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    cls = backend_class(spec.name)
    if "isolate" in spec.options and "isolate" not in cls.OPTIONS:
        inner = spec.without("isolate")
        if flag(spec.options["isolate"], f"backend '{spec}': isolate"):
            from onnxreduce.backends.child import IsolatedBackend

            return IsolatedBackend(inner)
        spec = inner
    return cls(spec)


def isolated(text: str) -> str:
    """The spec of the same backend in a process of its own; a browser and another interpreter
    are that already."""
    spec = parse_spec(text)
    apart = spec.name == "web" or spec.version or "python" in spec.options
    if apart or "isolate" in spec.options:
        return text
    return f"{text}{',' if spec.options else ':'}isolate"


def warm_backend(spec: str) -> Backend:
    """The backend of this spec that this process keeps open: opened at the first call."""
    if spec not in _warm:
        _warm[spec] = open_backend(spec)
    return _warm[spec]


def close_backends() -> None:
    """Close what `warm_backend` opened."""
    while _warm:
        _warm.popitem()[1].close()


def list_backends() -> list[Info]:
    """What there is, and for each whether it can be used here, or the reason and the fix."""
    infos: list[Info] = []
    for name in backend_names():
        try:
            infos += backend_class(name).probe()
        except Exception as error:
            infos.append(Info(name, reason=str(error) or type(error).__name__))
    return infos
