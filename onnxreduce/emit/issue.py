"""``ISSUE.md``: a report to paste, in the fields that ONNX Runtime's issue forms ask for.

Every field is filled from what is known; nothing is left as a placeholder.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from onnxreduce import __version__
from onnxreduce.backends.ort import provider_name
from onnxreduce.backends.web.options import read
from onnxreduce.case import InputValue
from onnxreduce.changes import type_text
from onnxreduce.compare import Tolerance, compare
from onnxreduce.emit import near_miss, repro
from onnxreduce.emit._scripts import files_in
from onnxreduce.emit.escape import code, fenced, line, markdown, markup, message
from onnxreduce.emit.mermaid import attribute_text, mermaid
from onnxreduce.emit.privacy import privacy
from onnxreduce.emit.secret import place
from onnxreduce.emit.text import model_text
from onnxreduce.files import write_atomically
from onnxreduce.result import Result, describe
from onnxreduce.sides import Side

FILE = "ISSUE.md"

SHORT_TEXT = 6_000
"""Letters of model text that an issue still shows."""

SENTENCE = 120
"""Letters of a detail that are a sentence; longer ones get a block of their own."""

VALUES = 12
"""Elements of a tensor that a table shows."""

WEB_PROVIDERS = {
    "wasm": "'wasm'/'cpu' (WebAssembly CPU)",
    "webgpu": "'webgpu' (WebGPU)",
    "webgl": "'webgl' (WebGL)",
}
PROVIDERS = {
    "CPUExecutionProvider": "Default CPU",
    "CUDAExecutionProvider": "CUDA",
    "CoreMLExecutionProvider": "CoreML",
    "DmlExecutionProvider": "DirectML",
    "DnnlExecutionProvider": "oneDNN",
    "OpenVINOExecutionProvider": "OpenVINO",
    "TensorrtExecutionProvider": "TensorRT",
    "MIGraphXExecutionProvider": "MIGraphX",
}
SYSTEMS = {"Linux": "Linux", "Darwin": "Mac", "Windows": "Windows"}
MACHINES = {"x86_64": "X64", "amd64": "X64", "aarch64": "ARM64", "arm64": "ARM64", "i686": "X86"}

ATTACHED = (
    ("repro.py", "runs both sides or the oracle; exit status 0 while the bug shows"),
    ("repro.html", "with repro.js: the same in a browser"),
    ("model.onnx", "the model"),
    ("inputs.npz", "its inputs"),
    ("oracle", "what `repro.py` asks; keep the folder beside it"),
    ("test_data_set_0", "inputs and expected outputs for `onnx_test_runner`"),
    ("backend_test", "the same for `onnx.backend.test.loader`"),
    ("op-test.jsonc", "an operator test for ONNX Runtime Web"),
    ("near-miss.onnx", "one edit away, without the bug"),
)


def emit(result: Result, directory: Path) -> None:
    text = issue(result, [name for name, _ in ATTACHED if (directory / name).exists()])
    write_atomically(directory / FILE, text.encode("utf-8", "replace"))


def issue(result: Result, files: list[str]) -> str:
    """The text of ``ISSUE.md``.

    Args:
        result: the reduction.
        files: names of the artefacts that were written.
    """
    web = any(side.spec.name == "web" for side in result.sides)
    fields = {
        "Describe the issue": _description(result),
        "To reproduce": _steps(result, files),
        "Urgency": "No deadline stated.",
        "Platform": "Web Browser" if web else SYSTEMS.get(platform.system(), "Other / Unknown"),
        "OS Version": _system(result.sides),
        "ONNX Runtime Installation": "Released Package",
        "ONNX Runtime Version or Commit ID": _versions(result),
        "ONNX Runtime API": "JavaScript" if web else "Python",
        "Architecture": MACHINES.get(platform.machine().lower(), "Other / Unknown"),
        "Execution Provider": ", ".join(_providers(result.sides)) or "Other / Unknown",
        "Execution Provider Library Version": _devices(result),
    }
    parts = [f"# {title(result, web)}"]
    parts += [f"### {field}\n\n{content}" for field, content in fields.items()]
    return "\n\n".join(parts) + "\n"


def title(result: Result, web: bool) -> str:
    """One line: which operators, and what is wrong."""
    operators = list(dict.fromkeys(node.op_type for node in result.reduced.model.graph))
    nodes = list(result.reduced.model.graph)
    what = ", ".join(operators[:4]) or "a model without nodes"
    if len(nodes) == 1 and nodes[0].attributes:
        shown = [f"{name}={attribute_text(a)}" for name, a in nodes[0].attributes.items()]
        what = f"{operators[0]} ({', '.join(shown)})"
    if len(operators) > 4:
        what += f" and {len(operators) - 4} more operators"
    by_role = {side.role: side for side in result.sides}
    if {"expected", "actual"} <= by_role.keys():
        what += f": {place(result, _versus(by_role['actual'], by_role['expected']))}"
    elif result.oracle.name in ("fails", "crashes") and "backend" in by_role:
        what += f": {place(result, by_role['backend'].spec)} {result.oracle.name}"
    else:
        what += f": {result.oracle.summary or result.verdict.detail or 'wrong behaviour'}"
    # A title is plain text wherever it is pasted; here it must not be taken for markup.
    return f"{'[Web] ' if web else ''}{message(what, 160)}".replace("<", "‹").rstrip(".")


def _versus(actual: Side, expected: Side) -> str:
    """The two sides by what tells them apart, as far as that fits a title."""
    if actual.spec.name == expected.spec.name == "web":
        words = [read(side.spec).provider for side in (actual, expected)]
        if words[0] != words[1]:
            return f"{words[0]} differs from {words[1]}"
    return f"{actual.spec} differs from {expected.spec}"


def _description(result: Result) -> str:
    before, after = describe(result.original), describe(result.reduced)
    detail = result.verdict.detail or result.oracle.summary
    detail = detail or "The model below shows a bug."
    if len(detail) > SENTENCE:  # most likely what a runtime says; a side has all of it
        whole = next((side.error for side in result.sides if side.error), detail)
        said = f"{fenced(message(whole, 2_000))}\n\n"
    else:
        said = f"{_sentence(markdown(detail, SENTENCE))} "
    parts = [
        f"{said}The model below is what is left of one of {before['nodes']:,} nodes: "
        f"{_count(after['nodes'], 'node')}, {_count(after['elements'], 'number')} in weights and "
        f"inputs{_state(result)}."
    ]
    parts += [*_tool(result), *_difference(result), *_sides_table(result)]
    miss = near_miss.words(result)
    if miss and result.near_miss is not None:
        said = result.near_miss.verdict.detail
        parts.append(
            f"**One step away the bug is gone:** {code(miss, 400)}"
            f"{f' ({markdown(message(said, 200), 200)})' if said else ''}."
        )
    drawn = mermaid(result.reduced.model)
    if drawn:
        parts.append(fenced(drawn, "mermaid"))
    text = model_text(result.reduced, most=256)
    if len(text) <= SHORT_TEXT:
        parts.append(f"In ONNX's text form:\n\n{fenced(text)}")
    parts += [*_inputs_table(result), privacy_paragraph(result)]
    return "\n\n".join(parts)


def _tool(result: Result) -> Iterator[str]:
    """What rewrites the model, where that is what goes wrong."""
    tool = result.oracle.parameters.get("tool")
    if result.oracle.name == "rewrites" and isinstance(tool, str):
        # Scripts in it are copied into the folder of the oracle.
        for file in files_in(tool):
            tool = re.sub(
                rf"[^\s:,={{}}]*(?<![^/\s:,={{}}]){re.escape(file.name)}",
                f"{repro.ORACLE}/{file.name}",
                tool,
            )
        known = result.oracle.identity
        shown = code(place(result, tool), 200)
        yield f"The tool is {shown}{f' ({markdown(known, 200)})' if known else ''}."


def privacy_paragraph(result: Result) -> str:
    return f"<sub>{markdown(privacy(result), 2_000)}</sub>"


def _state(result: Result) -> str:
    if result.stopped_by:
        return " (the reduction was stopped early, so it may not be minimal)"
    return " (nothing more can be taken away)" if result.one_minimal else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _difference(result: Result) -> Iterator[str]:
    by_role = {side.role: side for side in result.sides}
    if not {"expected", "actual"} <= by_role.keys():
        return
    expected, actual = by_role["expected"].outputs, by_role["actual"].outputs
    if expected is None or actual is None:
        return
    given = result.oracle.parameters
    tolerance = Tolerance(*(_float(given.get(name)) for name in ("atol", "rtol", "scale")))
    rows = []
    for found in compare(expected, actual, tolerance).differences:
        name = found.name.partition(".")[0]
        sides = [_range(outputs.get(name)) for outputs in (expected, actual)]
        if found.kind in ("values", "nonfinite", "same"):
            figures = [f"{found.max_abs:.4g}", f"{found.mean_abs:.4g}"]
            figures.append(f"{found.mismatched} of {found.total}")
        else:
            figures = [f"{found.kind}: {line(found.expected)} / {line(found.actual)}", "-", "-"]
        rows.append([code(found.name), *sides, *figures])
    if rows:
        head = ["output", "expected, range", "actual, range", "max abs", "mean abs", "wrong"]
        yield f"{_table(head, rows)}\n\n(out of tolerance: {tolerance})"


def _float(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _range(value: InputValue) -> str:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiubV" or not value.size:
        return "-"
    if value.size <= 4:
        return line(" ".join(_number(item) for item in value.reshape(-1)))
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    missing = wide.size - finite.size
    odd = f", {missing} not finite" if missing else ""
    return f"[{finite.min():.6g}, {finite.max():.6g}]{odd}" if finite.size else "not finite"


def _number(item: object) -> str:
    return f"{float(item):.6g}"  # type: ignore[arg-type]


def _sides_table(result: Result) -> Iterator[str]:
    if not result.sides:
        return
    rows = [
        [
            side.role,
            code(place(result, side.spec), 120),
            markdown(side.version or "unknown", 120),
            markdown(message(f"fails: {side.error}", 160), 160) if side.error else "runs",
        ]
        for side in result.sides
    ]
    yield "These versions were tried, and no others:\n\n" + _table(
        ["side", "backend", "version", "here"], rows
    )


def _inputs_table(result: Result) -> Iterator[str]:
    rows = []
    values = {value.name: value for value in result.reduced.model.graph.inputs}
    for name, array in result.reduced.inputs.items():
        if not isinstance(array, np.ndarray):
            continue
        shown = "in `inputs.npz`"
        if array.size <= VALUES:
            shown = code(" ".join(str(item) for item in array.reshape(-1)), 200)
        kind = type_text(values[name]) if name in values else ""
        rows.append([code(name), code(kind), code(list(array.shape)), shown])
    if rows:
        yield "Inputs:\n\n" + _table(["name", "declared", "shape", "values"], rows)


def _steps(result: Result, files: list[str]) -> str:
    told = dict(ATTACHED)
    listed = "\n".join(f"- `{name}`: {told[name]}" for name in files)
    if "repro.html" in files:
        how = (
            "Serve the attached folder (`python3 -m http.server`) and open `repro.html`, or run "
            "`pip install playwright && python repro.py`."
        )
    else:
        how = "Run the attached script; it exits with 0 while the bug shows, 1 when it is fixed."
    return f"{how}\n\nAttached:\n\n{listed}{_source(result)}"


def _source(result: Result) -> str:
    """The code that shows the bug, folded, where it can be read in one go."""
    kind = repro.kind(result)
    if kind in ("page", "function"):
        return ""
    if kind in ("oracle", "executable"):
        path = result.oracle.files[0]
        name, text = f"oracle/{path.name}", _readable(path)
    else:
        name, text = repro.NAME, repro.script(result)
    if not text or len(text) > SHORT_TEXT or place(result, text) != text:
        return ""  # the file is attached; whether its folders may be told is not for a text to say
    block = fenced(text, _language(name, text))
    return f"\n\n<details><summary>{markup(name)}</summary>\n\n{block}\n\n</details>"


def _readable(path: Path) -> str:
    """What a file says, where it is a text."""
    content = path.read_bytes()
    return "" if b"\0" in content else content.decode("utf-8", "replace")


def _language(name: str, text: str) -> str:
    first = text.partition("\n")[0]
    if name.endswith(".py") or (first.startswith("#!") and "python" in first):
        return "python"
    return "sh" if name.endswith(".sh") or re.match(r"#!.*sh\b", first) else ""


def _versions(result: Result) -> str:
    found = dict.fromkeys(line(side.version, 120) for side in result.sides if side.version)
    if found:
        return "; ".join(markdown(text, 120) for text in found)
    told = result.oracle.identity or f"onnxruntime {onnxruntime.__version__} is installed"
    return markdown(f"{told} (onnx {onnx.__version__}, onnxreduce {__version__})", 300)


def _system(sides: tuple[Side, ...]) -> str:
    browsers = dict.fromkeys(
        named[1] for side in sides if (named := re.search(r"\.mjs, (.+)$", side.version))
    )
    found = [*browsers, _distribution()] if browsers else [_distribution()]
    return markdown(", ".join(found), 200)


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()


def _providers(sides: tuple[Side, ...]) -> list[str]:
    found: dict[str, None] = {}
    for side in sides:
        if side.spec.name == "web":
            provider = read(side.spec).provider
            found[WEB_PROVIDERS.get(provider, "Other / Unknown")] = None
        elif side.spec.name == "ort":
            words = side.spec.options.get("ep", "cpu").split("+")
            for word in words:
                found[PROVIDERS.get(provider_name(word), "Other / Unknown")] = None
    return [*found]


def _devices(result: Result) -> str:
    named: Mapping[str, None] = dict.fromkeys(place(result, side.spec) for side in result.sides)
    if not named:
        return "Not applicable"
    return f"As it comes with the package; backends: {', '.join(code(n, 120) for n in named)}"
