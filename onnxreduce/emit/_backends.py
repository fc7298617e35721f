"""Python source that runs a model on a backend, as plain as its own documentation has it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import onnx

from onnxreduce.backends.ort import LEVELS, OrtBackend, provider_name
from onnxreduce.backends.spec import Spec
from onnxreduce.emit._python import quoted
from onnxreduce.emit.escape import docstring
from onnxreduce.sides import Side

SESSION = '''\
def {name}(model, feeds):
    """{what}"""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
{options}\
    providers = {providers}
    missing = set(providers) - set(onnxruntime.get_available_providers())
    if missing:
        raise CannotRun(f"this onnxruntime has no {{', '.join(missing)}}")
    session = onnxruntime.InferenceSession(
        model, options, providers=providers{more}
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))
'''

REFERENCE = '''\
def {name}(model, feeds):
    """{what}"""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return dict(zip(evaluator.output_names, evaluator.run(None, feeds)))
'''

PLUGIN = '''\
def {name}(model, feeds):
    """The function run() of {file}."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("plugin", HERE / {file_literal})
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    return plugin.run(model, feeds{options})
'''

OTHER = '''\
def {name}(model, feeds):
    """{what}"""
    from onnxreduce.backends import BackendError, open_backend

    try:
        backend = open_backend({spec!r})
    except BackendError as error:
        raise CannotRun(error) from error
    try:
        return backend.run(model, feeds)
    finally:
        backend.close()
'''


@dataclass(frozen=True)
class Source:
    """How a backend is run.

    Attributes:
        code: a function from a model's path and inputs to outputs by name.
        requirements: for pip.
        python: an expression for another interpreter that must run the function, or empty.
    """

    code: str
    requirements: tuple[str, ...]
    python: str = ""


def source(name: str, side: Side) -> Source:
    """The function `name` for a side."""
    spec = side.spec
    if spec.name == "ort" and "library" not in spec.options:
        return _session(name, side)
    if spec.name == "reference":
        what = f"onnx's reference evaluator{_found(side)}."
        code = REFERENCE.format(name=name, what=what)
        return Source(code, (f"onnx=={onnx.__version__}",))
    if spec.name == "plugin":
        return _plugin(name, spec)
    what = f"The backend {docstring(spec)}."
    return Source(OTHER.format(name=name, what=what, spec=str(spec)), ("onnxreduce",))


def plugin_file(spec: Spec) -> Path:
    """The user's file behind a plugin backend; a copy of it is put beside the script."""
    return Path(next(key for key in spec.options if key.endswith(".py"))).expanduser()


def _plugin(name: str, spec: Spec) -> Source:
    file = plugin_file(spec).name
    options = {k: v for k, v in spec.options.items() if not k.endswith(".py")}
    words = f", **{_typed(options)}" if options else ""
    code = PLUGIN.format(name=name, file=docstring(file), file_literal=quoted(file), options=words)
    return Source(code, ())


def _typed(options: dict[str, str]) -> str:
    items = []
    for key, text in options.items():
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = {"true": True, "false": False}.get(text, text)
        items.append(f"{quoted(key)}: {quoted(value)}")
    return f"{{{', '.join(items)}}}"


def _session(name: str, side: Side) -> Source:
    spec = side.spec
    given = {
        key: spec.options.get(key, option.default) for key, option in OrtBackend.OPTIONS.items()
    }
    providers = [provider_name(word) for word in given["ep"].split("+") if word]
    lines = []
    if given["opt"]:
        level = f"onnxruntime.GraphOptimizationLevel.{LEVELS[given['opt']]}"
        lines.append(f"options.graph_optimization_level = {level}")
    threads = int(float(given["threads"]))
    lines.append(f"options.intra_op_num_threads = options.inter_op_num_threads = {threads}")
    entries = {key: value for key, value in spec.options.items() if "." in key}
    for key, value in entries.items():
        if not key.startswith("provider."):
            lines.append(f"options.add_session_config_entry({quoted(key)}, {quoted(value)})")
    more = _provider_options(entries, len(providers))
    disabled = [word for word in given["disabled"].split("+") if word]
    if disabled:
        more += f",\n        disabled_optimizers={disabled!r}"
    code = SESSION.format(
        name=name,
        what=f"ONNX Runtime{_found(side)}: {_options_in_words(spec)}.",
        options="".join(f"    {line}\n" for line in lines),
        providers=f"[{', '.join(map(quoted, providers))}]",
        more=f"{more},\n    " if more else "",
    )
    code = code.replace(
        "InferenceSession(\n        model, options, providers=providers\n    )",
        "InferenceSession(model, options, providers=providers)",
    )
    if given["python"]:
        return Source(code, (), repr(given["python"]))
    package = given["package"] if spec.version else "onnxruntime"
    if spec.version:
        old = tuple(int(n) for n in re.findall(r"\d+", spec.version)[:2]) < (1, 19)
        wanted = [f"{package}=={spec.version}", "numpy<2" if old else "numpy"]
        return Source(code, (), f"environment({', '.join(map(quoted, wanted))})")
    version = side.version.removeprefix("onnxruntime ")
    pinned = f"{package}=={version}" if re.fullmatch(r"[\w.+]+", version) else package
    return Source(code, (pinned,))


def _provider_options(entries: dict[str, str], providers: int) -> str:
    first = {
        k.removeprefix("provider."): v for k, v in entries.items() if k.startswith("provider.")
    }
    if not first:
        return ""
    return f",\n        provider_options={[first, *[{}] * (providers - 1)]!r}"


def _found(side: Side) -> str:
    version = side.version.rpartition(" ")[2]
    return f" {version}" if re.fullmatch(r"[\w.+]+", version) else ""


def _options_in_words(spec: Spec) -> str:
    told = {k: v for k, v in spec.options.items() if k not in ("python", "package", "timeout")}
    if not told:
        return "its defaults, on the CPU"
    words = ", ".join(f"{key}={value}" for key, value in told.items())
    return docstring(words)
