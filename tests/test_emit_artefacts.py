"""Every artefact is read by what it was made for."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from emitting import case_of, differs, outputs_of, result_of, run_script, side, strided, written
from node_cases import cases_of
from onnx.backend.test import loader

from onnxreduce import emit, reduce
from onnxreduce.case import Case
from onnxreduce.emit import issue, page
from onnxreduce.emit.closing import closing_words
from onnxreduce.emit.mermaid import mermaid
from onnxreduce.emit.op_test import TYPES, Unfit, op_test
from onnxreduce.emit.text import model_text, parsed_back
from onnxreduce.nearmiss import NearMiss
from onnxreduce.result import Result
from onnxreduce.used import OracleUsed
from onnxreduce.verdict import Verdict

NASTY = [
    "<script>alert(1)</script>",
    "\"quoted\" 'twice' `and` again",
    "back\\slash\\n \\u2028 %s {0} {name}",
    "new\nline\r\n\ttab",
    "</details></code>-->]]> | # @somebody [x](javascript:alert(1))",
    '"""\n"]) --> end',
    "\u2028ünïcödé\u202e",
    "x" * 4_000,
]


def both_sides(case: Case) -> dict[str, Any]:
    """Fields of a result whose actual side is off by one."""
    right = outputs_of(case)
    wrong = {name: np.asarray(value) + np.float32(1) for name, value in right.items()}
    sides = (side("expected", "reference", right), side("actual", "ort", wrong))
    return {"sides": sides, "outputs": right, **differs("reference", "ort")}


def nasty_model() -> Case:
    """Names, a dim and an attribute that try to break out of wherever they are put."""
    names = [f"{name}{index}" for index, name in enumerate(NASTY)]
    nodes = [
        onnx.helper.make_node("Relu", [before], [after], name=after)
        for before, after in pairwise(names)
    ]
    nodes.append(
        onnx.helper.make_node(
            "Conv", [names[-1], NASTY[0]], ["y"], auto_pad="SAME_UPPER", strides=[2]
        )
    )
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes,
            NASTY[1],
            [onnx.helper.make_tensor_value_info(names[0], 1, [1, 1, NASTY[0]])],
            [onnx.helper.make_tensor_value_info("y", 1, [NASTY[5], None, None])],
            [onnx.numpy_helper.from_array(np.ones((1, 1, 3), np.float32), NASTY[0])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name=NASTY[3],
    )
    return case_of(model, **{names[0]: [[[1, 2, 3, 4]]]})


# --- the text form ---


def test_text_parses_back_to_the_same_digest(tmp_path: Path) -> None:
    written(result_of(strided()), tmp_path)
    model = onnx.parser.parse_model((tmp_path / "model.txt").read_text())
    assert Case(ir.from_proto(model), strided().inputs).digest == strided().digest


def test_an_initializer_is_shown_once() -> None:
    text = model_text(strided())
    assert text.count("float[1,1,1,3] w") == 1
    assert "{0,0.1,1}" in text


def test_text_of_onnx_s_own_cases() -> None:
    cases = cases_of("Conv")
    assert len(cases) > 5
    for case in cases:
        mine = case_of(case.model)
        assert parsed_back(model_text(mine, 10**6), mine), case.name


def test_large_tensors_are_names(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g () => (float[?] y) { y = Add(w, b) }'
    )
    model.graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(np.ones((70, 90), np.float32), "w"),
            onnx.numpy_helper.from_array(np.full(1, 2.5, np.float32), "b"),
        ]
    )
    written(result_of(case_of(model)), tmp_path)
    text = (tmp_path / "model.txt").read_text()
    assert text.startswith("# ")
    assert "float[70,90] w" in text
    assert "2.5" in text
    assert len(text) < 500
    onnx.parser.parse_model(text)


# --- the layouts of tests ---


def test_onnx_loads_and_onnxruntime_passes_the_backend_test(tmp_path: Path) -> None:
    case = strided()
    written(result_of(case, outputs=outputs_of(case), **differs("a", "b", atol=0.5)), tmp_path)
    (test,) = loader.load_model_tests(str(tmp_path / "backend_test"), "simple")
    assert test.name == "test_conv"
    assert test.atol == 0.5
    assert test.model_dir is not None
    for folder in (Path(test.model_dir), tmp_path):
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
        data = folder / "test_data_set_0"
        values = [
            onnx.numpy_helper.to_array(onnx.TensorProto.FromString((data / name).read_bytes()))
            for name in ("input_0.pb", "output_0.pb")
        ]
        (actual,) = session.run(None, {session.get_inputs()[0].name: values[0]})
        np.testing.assert_allclose(actual, values[1], rtol=test.rtol, atol=1e-6)


def jsonc(path: Path) -> Any:
    lines = path.read_text().splitlines()
    return json.loads("\n".join(line for line in lines if not line.startswith("//")))


def whole(value: object) -> bool:
    """An ``integer`` of JSON Schema."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_op_test(tests: Any) -> None:
    """Every rule of ``js/web/test/op-test-schema.json`` of ONNX Runtime, and that sizes agree."""
    kinds = {"int": int, "float": (int, float), "string": str}
    assert isinstance(tests, list)
    for test in tests:
        optional = {"attributes", "opset", "inputShapeDefinitions", "platformCondition"}
        assert (
            {"name", "operator", "cases"} <= test.keys() <= {"name", "operator", "cases"} | optional
        )
        assert isinstance(test["name"], str)
        assert re.search(r"[A-Z][a-zA-Z]*", test["operator"])
        assert test["opset"].keys() == {"domain", "version"}
        assert isinstance(test["opset"]["domain"], str)
        assert whole(test["opset"]["version"])
        assert isinstance(test.get("platformCondition", ""), str)
        for attribute in test["attributes"]:
            assert attribute.keys() == {"name", "type", "data"}
            assert isinstance(attribute["name"], str)
            kind = attribute["type"]
            assert kind.removesuffix("s") in kinds
            assert isinstance(attribute["data"], list) == kind.endswith("s")
            values = attribute["data"] if kind.endswith("s") else [attribute["data"]]
            assert all(isinstance(value, kinds[kind.removesuffix("s")]) for value in values)
            assert not any(isinstance(value, bool) for value in values)
        for shape in test["inputShapeDefinitions"]:
            assert shape is None or isinstance(shape, list)
            assert all(whole(dim) or isinstance(dim, str) for dim in shape or ())
        for case in test["cases"]:
            assert case.keys() == {"name", "inputs", "outputs"}
            assert isinstance(case["name"], str)
            assert len(case["inputs"]) == len(test["inputShapeDefinitions"])
            for tensor in case["inputs"] + case["outputs"]:
                assert tensor["type"] in TYPES
                if tensor["data"] is None:
                    assert tensor.keys() == {"type", "data"}
                    continue
                assert tensor.keys() == {"type", "data", "dims"}
                assert all(whole(dim) and dim >= 0 for dim in tensor["dims"])
                assert len(tensor["data"]) == np.prod(tensor["dims"], dtype=int)
                assert all(isinstance(v, (int, float, str, bool)) for v in tensor["data"])


def test_the_operator_test_is_of_its_format(tmp_path: Path) -> None:
    case = strided()
    written(result_of(case, outputs=outputs_of(case)), tmp_path)
    tests = jsonc(tmp_path / "op-test.jsonc")
    check_op_test(tests)
    (test,) = tests
    assert {"name": "auto_pad", "data": "SAME_UPPER", "type": "string"} in test["attributes"]
    assert test["inputShapeDefinitions"] == [["N", 1, 1, 4], [1, 1, 1, 3]]
    assert test["cases"][0]["inputs"][1]["data"] == [0.0, 0.1, 1.0]
    assert test["cases"][0]["outputs"][0]["dims"] == [1, 1, 1, 2]


def test_operator_tests_of_onnx_s_own_cases() -> None:
    written_ones = 0
    for case in cases_of("Clip") + cases_of("Resize") + cases_of("LSTM"):
        given, expected = case.data_sets[0]
        names = [value.name for value in case.model.graph.input]
        mine = Case(ir.from_proto(case.model), dict(zip(names, given, strict=True)))
        outputs = dict(zip((v.name for v in case.model.graph.output), expected, strict=True))
        try:
            test = op_test(mine, outputs, case.name)
        except Unfit:
            continue
        check_op_test(json.loads(json.dumps([test], allow_nan=False)))
        written_ones += 1
    assert written_ones > 12


def test_two_operators_are_no_operator_test(tmp_path: Path) -> None:
    case = strided()
    written(result_of(case, outputs=outputs_of(case)), tmp_path)
    two = case_of(
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }",
        x=[1, 2],
    )
    written(result_of(two, outputs=outputs_of(two)), tmp_path)
    assert not (tmp_path / "op-test.jsonc").exists()  # the first one is not left behind


# --- the issue ---

FORM = (
    "Describe the issue",
    "To reproduce",
    "Urgency",
    "Platform",
    "OS Version",
    "ONNX Runtime Installation",
    "ONNX Runtime Version or Commit ID",
    "ONNX Runtime API",
    "Architecture",
    "Execution Provider",
    "Execution Provider Library Version",
)


def fields_of(text: str) -> dict[str, str]:
    outside = re.sub(r"(?ms)^(`{3,}).*?^\1$", lambda m: m[0].replace("\n#", "\n #"), text)
    parts = re.split(r"(?m)^### (.+)$", outside)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("sides", [True, False])
def test_no_field_is_left_empty(tmp_path: Path, sides: bool) -> None:
    case = strided()
    fields = both_sides(case) if sides else {"oracle": OracleUsed("o.py", "It is wrong")}
    written(result_of(case, **fields), tmp_path)
    text = (tmp_path / "ISSUE.md").read_text()
    assert tuple(fields_of(text)) == FORM
    for name, content in fields_of(text).items():
        assert content, name
        prose = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", content)
        assert not re.search(r"(?i)todo|tbd|fill in|placeholder|\bNone\b|\{\w*\}|nan", prose)


def test_the_difference_is_a_table(tmp_path: Path) -> None:
    case = strided()
    written(result_of(case, **both_sides(case)), tmp_path)
    text = (tmp_path / "ISSUE.md").read_text()
    assert re.search(r"(?m)^\| `y` \| .+ \| .+ \| 1 \| 1 \| 2 of 2 \|$", text)
    assert "```mermaid\nflowchart TD" in text
    assert f"onnxruntime {onnxruntime.__version__}" in text
    assert "Default CPU" in fields_of(text)["Execution Provider"]


def test_the_near_miss_is_told_and_runs(tmp_path: Path) -> None:
    text = """
    from onnxreduce import Verdict

    def interesting(case):
        '''A strided Conv that pads.'''
        for node in case.model.graph.node:
            strides = [a.ints for a in node.attribute if a.name == "strides"]
            if node.op_type == "Conv" and strides and max(strides[0]) > 1:
                return Verdict.interesting("a stride")
        return Verdict.boring("no stride")
    """
    oracle = tmp_path / "o.py"
    oracle.write_text("\n".join(line[4:] for line in text.splitlines()))
    out = tmp_path / "out"
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,1,8] x) => (float[1,1,1,4] y) <float[1,1,1,3] w = {1,2,3}> {
          r = Relu(x)
          c = Conv <auto_pad = "SAME_UPPER", strides = [1, 2]> (r, w)
          y = Sigmoid(c)
        }"""
    )
    result = reduce(model, str(oracle), output=out)
    assert result.near_miss is not None
    assert result.near_miss.verdict.detail == "no stride"
    (words,) = result.near_miss.changes
    assert re.fullmatch(r"Conv: strides \[(1, )?2\] -> (\[(1, )?1\]|\(default\))", words)
    assert words in (out / "ISSUE.md").read_text()
    assert json.loads((out / "summary.json").read_text())["near_miss"]["changes"] == [words]
    session = onnxruntime.InferenceSession(str(out / "near-miss.onnx"))
    with np.load(out / "near-miss-inputs.npz") as inputs:
        session.run(None, dict(inputs))
    assert run_script(out).returncode in (0, 2)  # 2: this package is not installed for it


# --- what a model says of itself ---


class Tags(HTMLParser):
    """The tags of a page, and whether anything runs on events."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


def nasty_result() -> Result:
    case = nasty_model()
    near = NearMiss(case, NASTY[2], (f"{NASTY[0]}: 1 -> 2",), Verdict.boring(NASTY[4]))
    return result_of(
        case,
        verdict=Verdict.interesting(" ".join(NASTY), "values"),
        near_miss=near,
        **both_sides(case),
    )


def test_nasty_names_make_safe_artefacts(tmp_path: Path) -> None:
    written(nasty_result(), tmp_path)
    case = nasty_model()
    loaded = onnx.load(tmp_path / "model.onnx")
    assert [value.name for value in loaded.graph.input] == list(case.inputs)
    text = (tmp_path / "model.txt").read_bytes().decode()
    assert parsed_back(text, case)
    done = run_script(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    json.loads((tmp_path / "summary.json").read_text())


def test_nasty_names_do_not_break_out_of_the_issue(tmp_path: Path) -> None:
    written(nasty_result(), tmp_path)
    text = (tmp_path / "ISSUE.md").read_text()
    assert tuple(fields_of(text)) == FORM
    outside = re.sub(r"(?ms)^(`{3,})[^\n]*\n.*?^\1$", "", text)
    outside = re.sub(r"`[^`\n]*`", "", outside)
    tags = Tags()
    tags.feed(outside)
    assert set(tags.seen) <= {"sub", "details", "summary"}
    assert "@somebody" not in outside
    assert max(map(len, outside.splitlines())) < 4_000
    rows = [line for line in outside.splitlines() if line.startswith("|")]
    assert rows


def test_nasty_names_do_not_break_out_of_the_diagram() -> None:
    drawn = mermaid(nasty_model().model)
    assert drawn is not None
    label = r'"(<b>|</b>|<br/>|#\d+;|[^"<>#;{}|`\\])*"'
    line = rf"  (\w+(\(\[{label}\]\)|\[/{label}/\]|\[{label}\])|\w+ -->(\|{label}\| |\ )?\w+)"
    for each in drawn.splitlines()[1:]:
        assert re.fullmatch(line, each), each


def test_a_large_graph_is_not_drawn() -> None:
    nodes = "\n".join(f"a{i + 1} = Relu(a{i})" for i in range(60))
    model = f'<ir_version: 8, opset_import: ["": 17]> g (float a0) => (float a60) {{ {nodes} }}'
    assert mermaid(case_of(model).model) is None


# --- together ---


def test_one_broken_artefact_does_not_lose_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(result: Result, files: list[str]) -> str:
        raise ZeroDivisionError("as it happens")

    monkeypatch.setattr(issue, "issue", broken)
    done = emit.write_all(result_of(strided()), tmp_path)
    (note,) = [note for note in done.notes if "missing" in note]
    assert "issue" in note
    assert "as it happens" in note
    assert not (tmp_path / "ISSUE.md").exists()
    assert (tmp_path / "repro.py").exists()
    assert note in json.loads((tmp_path / "summary.json").read_text())["notes"]


def test_a_model_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        emit.write_all(result_of(strided()), tmp_path / "nowhere")


def test_the_page_is_only_for_the_web(tmp_path: Path) -> None:
    case = strided()
    web = (
        side("expected", "web@1.23.2:wasm", outputs_of(case)),
        side("actual", "web@1.23.2:webgpu", outputs_of(case)),
    )
    written(result_of(case, sides=web, **differs("web:wasm", "web:webgpu")), tmp_path)
    source = (tmp_path / "repro.js").read_text()
    assert '"version": "1.23.2"' in source
    assert "onnxruntime-web@${version}/dist/" in source
    assert (tmp_path / "model-static.onnx").exists()
    text = fields_of((tmp_path / "ISSUE.md").read_text())
    assert text["Platform"] == "Web Browser"
    assert text["ONNX Runtime API"] == "JavaScript"
    written(result_of(case), tmp_path)
    assert not [name for name in (*page.FILES, page.STATIC) if (tmp_path / name).exists()]


def test_the_last_words_stay_short() -> None:
    case = case_of(
        '<ir_version: 8, opset_import: ["": 17]> g () => (float[?] y) '
        f"<float[300] w = {{{','.join(['1.5'] * 300)}}}> {{ y = Relu(w) }}"
    )
    assert max(map(len, closing_words(result_of(case)).splitlines())) < 300


def test_the_issue_names_the_tool_that_rewrites(tmp_path: Path) -> None:
    tool = tmp_path / "mine.py"
    tool.write_text("def rewrite(model): ...\n")
    used = OracleUsed(
        "rewrites",
        ready_made=True,
        parameters={"tool": f"python {tool} {{model}} {{output}}"},
        identity="some-tool 1.2",
    )
    text = issue.issue(replace(result_of(strided()), oracle=used), [])
    assert "The tool is `python oracle/mine.py {model} {output}` (some-tool 1.2)." in text
    assert str(tmp_path) not in text
