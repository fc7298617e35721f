"""The pieces that ``repro.py`` is put together from."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreduce.emit._python import quoted
from onnxreduce.result import Result

SHOWN = 40
"""Lines of a model that is not in the script which are shown as a comment."""

RUNS_SIDES = ("differ", "expected fails", "actual fails", "fails", "crashes", "nan")
"""Kinds of check that run backends by plain calls of their packages."""

HEAD = '''\
"""Shows a bug: {bug}

    pip install {install}
    python repro.py
{more}
Exit status: 0 the bug shows; 1 it does not; 2 this script cannot tell. Written by onnxreduce.
"""
'''

NEEDS = {
    "oracle": "\nKeep the folder oracle/ beside it: that code decides whether the bug shows.\n",
    "executable": "\nKeep the folder oracle/ beside it: its program decides if the bug shows.\n",
    "page": "\nKeep repro.html, repro.js and model.onnx beside it: it opens them in a browser.\n",
}

BEGIN = '''\
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


class CannotRun(Exception):
    """Something is missing here, so nothing is known of the bug."""
'''

MODEL_TEXT = '''\
MODEL = {text}


def write_model(path):
    """The model as a file."""
    import onnx.parser

    onnx.save(onnx.parser.parse_model(MODEL), str(path))
    return path
'''

MODEL_FILE = '''\
def write_model(path):
    """The model is a file beside this script."""
    model = HERE / "model.onnx"
    if not model.exists():
        raise CannotRun("model.onnx is missing: keep it beside this script")
    return model


# It begins with:'''

INPUTS = '''\
def inputs():
    """By name."""
    return {inputs}
'''

INPUTS_FILE = '''\
def inputs():
    """By name, from the file beside this script."""
    if not (HERE / "inputs.npz").exists():
        raise CannotRun("inputs.npz is missing: keep it beside this script")
    with np.load(HERE / "inputs.npz") as archive:
        arrays = dict(archive)
    return {name: a.astype(object) if a.dtype.kind == "U" else a for name, a in arrays.items()}
'''

INPUTS_EXOTIC = '''\
def inputs():
    """By name, from the file beside this script; numpy alone cannot read these types."""
    import onnx_ir
    from onnxreduce.inputs import load_inputs

    return load_inputs(HERE / "inputs.npz", onnx_ir.load(HERE / "model.onnx"))
'''

HERE_ONLY = '''\
def run(role, model, feeds):
    """The outputs of one side by name."""
    return SIDES[role](str(model), feeds)
'''

ELSEWHERE = '''\
class Died(Exception):
    """The process of a side died."""


def environment(*requirements):
    """The interpreter of a virtual environment beside this script; made when it is not there."""
    home = HERE / f".venv-{requirements[0].replace('==', '-')}"
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    try:
        if not (home / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *requirements], check=True)
            (home / "complete").touch()
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotRun(f"{' '.join(requirements)} cannot be installed: {error}") from error
    return python


def run(role, model, feeds):
    """The outputs of one side by name; some sides run in a process of their own."""
    if role not in PYTHONS:
        return SIDES[role](str(model), feeds)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder, "in.npz"), **{n: storable(a) for n, a in feeds.items()})
        command = [PYTHONS[role](), __file__, "--side", role, str(model), folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = done.stdout.decode(errors="replace").strip().splitlines() or ["nothing said"]
        if done.returncode == 2:
            raise CannotRun(said[-1])
        if done.returncode < 0 or done.returncode > 2:
            raise Died(f"exit status {done.returncode}: {said[-1]}")
        if done.returncode:
            raise RuntimeError(said[-1])
        return read(Path(folder, "out.npz"))


def storable(array):
    if not isinstance(array, np.ndarray):
        raise CannotRun("this side takes tensors only")
    return array.astype(str) if array.dtype == object else array


def read(path):
    with np.load(path) as archive:
        arrays = dict(archive)
    return {name: a.astype(object) if a.dtype.kind == "U" else a for name, a in arrays.items()}


def side(role, model, folder):
    """In the process of a side."""
    try:
        outputs = SIDES[role](model, read(Path(folder, "in.npz")))
    except (CannotRun, ImportError) as error:
        print(error)
        return 2
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\\n", " "))
        return 1
    np.savez(Path(folder, "out.npz"), **{n: storable(np.asarray(a)) for n, a in outputs.items()})
    return 0
'''

DIFFER = '''\
ATOL, RTOL, SCALE = {atol}, {rtol}, {scale}


def check(model, feeds):
    """Do the two sides differ?"""
    expected = flat(run("expected", model, feeds))
    actual = flat(run("actual", model, feeds))
    if expected.keys() != actual.keys():
        print("outputs:", *expected, "/", *actual)
        return True
    return any([different(name, expected[name], actual[name]) for name in expected])


def flat(outputs):
    """The tensors of outputs; a sequence has several."""
    found = {{}}
    for name, value in outputs.items():
        parts = {{f"{{name}}.{{i}}": part for i, part in enumerate(value)}}
        found.update(parts if isinstance(value, list) else {{name: np.asarray(value)}})
    return found


def different(name, expected, actual):
    """As numpy.allclose has it; prints both."""
    print(f"{{name}}: expected {{shown(expected)}}")
    print(f"{{name}}: actual   {{shown(actual)}}")
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return True
    if expected.dtype.kind in "OUSb":
        return bool((expected != actual).any())
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    left, right = expected.astype(kind), actual.astype(kind)
    finite = np.isfinite(left) & np.isfinite(right)
    gap = np.abs(left - right)[finite]
    if gap.size:
        print(f"{{name}}: max abs difference {{gap.max():.6g}}, mean {{gap.mean():.6g}}")
    atol = ATOL + SCALE * float(np.abs(left[np.isfinite(left)]).max(initial=0))
    return not np.allclose(right, left, RTOL, atol, equal_nan=True)


def shown(array):
    """Type, shape and the first elements."""
    few = " ".join(map(str, array.ravel()[:12]))
    return f"{{array.dtype}}{{list(array.shape)}} {{few}}{{' ...' if array.size > 12 else ''}}"
'''

ONE_FAILS = '''\
def check(model, feeds):
    """Does one side fail where the other does not?"""
    run("{healthy}", model, feeds)
    try:
        run("{failing}", model, feeds)
    except CannotRun:
        raise
    except Exception as error:
        print(f"{failing} fails: {{type(error).__name__}}: {{error}}")
        return True
    return False
'''

FAILS = '''\
MESSAGE = {message}  # a regular expression


def check(model, feeds):
    """Does it fail, and with this message?"""
    import re

    try:
        run("backend", model, feeds)
    except CannotRun:
        raise
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}")
        return bool(re.search(MESSAGE, str(error)))
    return False
'''

CRASHES = '''\
def check(model, feeds):
    """Does it take its process down?"""
    try:
        run("backend", model, feeds)
    except Died as error:
        print(error)
        return True
    except RuntimeError as error:
        print(f"an ordinary error: {error}")
    return False
'''

NAN = '''\
def check(model, feeds):
    """Are there values that are not finite?"""
    found = False
    for name, value in run("backend", model, feeds).items():
        for part in value if isinstance(value, list) else [value]:
            if part.dtype.kind in "fc":
                bad = int((~np.isfinite(part)).sum())
                print(f"{name}: {bad} of {part.size} elements are not finite")
                found = found or bad > 0
    return found
'''

ORACLE = '''\
ORACLE, SETTINGS = HERE / "oracle" / {file}, {settings}


class Case:
    """What the oracle is given."""

    def __init__(self, model_path, inputs):
        self.model_path, self.inputs = model_path, inputs

    @property
    def model(self):
        import onnx

        return onnx.load(str(self.model_path))


def check(model, feeds):
    """What the oracle says."""
    import importlib.util
    import os

    if not ORACLE.exists():
        raise CannotRun(f"oracle/{{ORACLE.name}} is missing: keep it beside this script")
    sys.path.insert(0, str(ORACLE.parent))
    os.chdir(ORACLE.parent)
    spec = importlib.util.spec_from_file_location(f"_oracle_{{ORACLE.stem}}", ORACLE)
    oracle = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    getattr(oracle, "setup", bool)()
    try:
        verdict = oracle.interesting(Case(model, feeds), **SETTINGS)
    finally:
        getattr(oracle, "teardown", bool)()
    if hasattr(verdict, "outcome"):
        print(verdict.detail)
        if verdict.outcome.value == "skipped":
            raise CannotRun("the oracle skips it")
    return bool(verdict)
'''

EXECUTABLE = '''\
COMMAND = {command}


def check(model, feeds):
    """What the program says: exit status 0, it shows; 125, it cannot tell."""
    with tempfile.TemporaryDirectory() as folder:
        data = HERE / "inputs.npz"
        if not data.exists():
            data = Path(folder, "inputs.npz")
            np.savez(data, **feeds)
        status = subprocess.run([*COMMAND, str(model), str(data)], cwd=folder).returncode
    if status == 125:
        raise CannotRun("the oracle cannot tell")
    return status == 0
'''

FUNCTION = '''\
def check(model, feeds):
    """What ONNX Runtime computes; which values are wrong is not known to this script."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for output, value in zip(session.get_outputs(), session.run(None, feeds)):
        print(output.name, value)
    raise CannotRun("the oracle was a function in another program: write its check here")
'''

PAGE = '''\
def check(model, feeds):
    """Opens repro.html in Chromium and reads what it finds."""
    import functools
    import http.server
    import shutil
    import threading

    from playwright.sync_api import sync_playwright

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Quiet, directory=str(HERE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    query = f"?ort={sys.argv[1]}" if len(sys.argv) > 1 else ""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--enable-unsafe-webgpu"]
        )
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/repro.html{query}")
        page.wait_for_selector("body[data-shows]", timeout=300_000)
        print(page.inner_text("table"))
        shows = page.get_attribute("body", "data-shows")
        browser.close()
    server.shutdown()
    if shows == "unknown":
        raise CannotRun("a side does not run in this browser")
    return shows == "yes"
'''

END = """\
def main():
    with tempfile.TemporaryDirectory() as folder:
        shows = check(write_model(Path(folder, "model.onnx")), inputs())
    if "onnxruntime" in sys.modules:
        print("onnxruntime", sys.modules["onnxruntime"].__version__)
    print("the bug shows" if shows else "the bug does not show")
    return 0 if shows else 1


if __name__ == "__main__":
    try:
        sys.exit({main})
    except (CannotRun, ImportError) as error:
        print(f"cannot tell: {{error}}", file=sys.stderr)
        sys.exit(2)
    except Exception:
        traceback.print_exc()
        sys.exit(2)
"""


def end(*, elsewhere: bool) -> str:
    """The main program; with sides in processes of their own it is theirs too."""
    side = 'side(*sys.argv[2:]) if sys.argv[1:2] == ["--side"] else main()'
    body, _, tail = END.partition("\n\n\nif __name__")
    return body + "\n\n\nif __name__" + tail.format(main=side if elsewhere else "main()")


def table(functions: Mapping[str, str], pythons: Mapping[str, str]) -> str:
    """Which function runs which side, and where.

    Args:
        functions: names by role.
        pythons: by role, an expression for the interpreter; empty: the one that runs the script.
    """
    sides = ", ".join(f"{quoted(role)}: {name}" for role, name in functions.items())
    lines = [f"SIDES = {{{sides}}}"]
    other = {role: python for role, python in pythons.items() if python}
    if not other:
        return f"{lines[0]}\n\n\n{HERE_ONLY}"
    words = ", ".join(f"{quoted(role)}: lambda: {python}" for role, python in other.items())
    lines.append(f"PYTHONS = {{{words}}}")
    return "\n".join(lines) + f"\n\n\n{ELSEWHERE}"


def check(kind: str, result: Result) -> str:
    """The function that decides."""
    given = result.oracle.parameters
    if kind == "differ":
        tolerances = {key: number(given.get(key, 0.0)) for key in ("atol", "rtol", "scale")}
        return DIFFER.format(**tolerances)
    if kind in ("expected fails", "actual fails"):
        failing = kind.split()[0]
        healthy = "actual" if failing == "expected" else "expected"
        return ONE_FAILS.format(failing=failing, healthy=healthy)
    if kind == "fails":
        return FAILS.format(message=quoted(str(given.get("message", ""))))
    if kind == "oracle":
        settings = ", ".join(f"{quoted(key)}: {_setting(value)}" for key, value in given.items())
        return ORACLE.format(file=quoted(result.oracle.files[0].name), settings=f"{{{settings}}}")
    if kind == "executable":
        file = f'str(HERE / "oracle" / {result.oracle.files[0].name!r})'
        python = "sys.executable, " if result.oracle.files[0].suffix == ".py" else ""
        return EXECUTABLE.format(command=f"[{python}{file}]")
    return {"crashes": CRASHES, "nan": NAN, "function": FUNCTION, "page": PAGE}[kind]


def files_in(value: object) -> list[Path]:
    """Python files that a parameter names, as in ``mine.py:rewrite`` or ``plugin:mine.py``."""
    words = re.findall(r"[^\s:,={}]+\.py", value) if isinstance(value, str) else []
    return [path for word in words if (path := Path(word).expanduser()).is_file()]


def _setting(value: object) -> str:
    """A parameter; the files in it are beside the oracle, where it runs."""
    if not isinstance(value, str):
        return number(value)
    for file in files_in(value):
        value = re.sub(rf"[^\s:,={{}}]*/(?={re.escape(file.name)})", "", value)
    return quoted(value)


def number(value: Any) -> str:
    """A literal of a parameter."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return quoted(value)
