"""Scrubbing: what is private goes, as far as the bug survives it, and what stays is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from emitting import case_of, result_of

from onnxreduce import reduce
from onnxreduce.backends.spec import parse_spec
from onnxreduce.case import Case
from onnxreduce.emit.issue import issue
from onnxreduce.emit.privacy import privacy
from onnxreduce.emit.report import report
from onnxreduce.emit.secret import place, public
from onnxreduce.emit.summary import summary
from onnxreduce.emit.way import Way
from onnxreduce.engine import Question
from onnxreduce.modelio import to_proto
from onnxreduce.scrub import Dim, Scrub, Scrubbed, _with_dims, content, plain, randomised
from onnxreduce.sides import Side
from onnxreduce.verdict import Verdict

PRIVATE = """<ir_version: 8, opset_import: ["": 17], producer_name: "acme">
patients (float[batch_of_patients,4] blood_pressure) => (float[batch_of_patients,2] diagnosis)
<float[4,2] acme_weights = {0.11,0.22,0.33,0.44,0.55,0.66,0.77,0.88}, float[2] secret = {3.25,1.5}>
{
   hidden_units = MatMul (blood_pressure, acme_weights)
   diagnosis = Add (hidden_units, secret)
}"""


def private() -> Case:
    return case_of(PRIVATE, blood_pressure=[[120.5, 80.25, 119.75, 81.5]])


class Listener:
    """Answers by a function; keeps what was asked."""

    def __init__(self, interesting: Callable[[Case], bool]) -> None:
        self.interesting = interesting
        self.asked: list[str] = []

    def stage(self, name: str) -> None:
        assert name == "scrub"

    def ask(self, question: Question) -> Verdict:
        self.asked.append(question.edit)
        return Verdict.interesting() if self.interesting(question.case) else Verdict.boring()

    def accepted(self, question: Question, verdict: Verdict) -> None:
        assert verdict


def scrub(case: Case, interesting: Callable[[Case], bool]) -> tuple[Scrub, Listener]:
    listener = Listener(interesting)
    done = Scrub(case, listener)
    done.run()
    return done, listener


def test_nothing_private_is_left_when_nothing_is_needed() -> None:
    done, listener = scrub(private(), lambda case: True)
    text = str(to_proto(done.case)) + str(dict(done.case.inputs))
    for word in ("acme", "patients", "blood", "secret", "hidden", "diagnosis", "120.5", "3.25"):
        assert word not in text, word
    assert done.scrubbed.kept == ()
    assert len(listener.asked) == 4
    onnx.checker.check_model(to_proto(done.case), full_check=True)
    assert content(private()) == ["blood_pressure", "acme_weights", "secret"]


def test_shapes_and_types_stay() -> None:
    done, _ = scrub(private(), lambda case: True)
    (before,), (after,) = private().inputs.values(), done.case.inputs.values()
    assert isinstance(before, np.ndarray)
    assert isinstance(after, np.ndarray)
    assert after.shape == before.shape
    assert after.dtype == before.dtype
    assert before.min() <= after.min() <= after.max() <= before.max()


def holds(case: Case, value: float) -> bool:
    tensors = [v.const_value for v in case.model.graph.initializers.values()]
    return any((t.numpy() == np.float32(value)).any() for t in tensors if t is not None)


def test_what_the_bug_needs_is_kept_and_told() -> None:
    done, _ = scrub(
        private(),
        lambda case: (
            holds(case, 3.25)
            and any(node.outputs[0].name == "hidden_units" for node in case.model.graph)
        ),
    )
    assert holds(done.case, 3.25)
    assert not holds(done.case, 0.11)
    kept = " | ".join(done.scrubbed.kept)
    assert "the name of the value hidden_units" in kept
    assert kept.count("values of") == 1
    assert any("values of acme_weights" in words for words in done.scrubbed.replaced)
    told = privacy(result_of(done.case, original=private(), scrubbed=done.scrubbed))
    assert "hidden_units" in told


def test_the_case_so_far_survives_an_interruption() -> None:
    class Enough(Exception):
        pass

    def once(case: Case) -> bool:
        if not holds(case, 3.25):
            calls.append(1)
        if len(calls) > 1:
            raise Enough
        return True

    calls: list[int] = []
    done = Scrub(private(), Listener(once))
    with pytest.raises(Enough):
        done.run()
    assert not holds(done.case, 3.25)
    assert done.scrubbed.kept


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.zeros((20, 20), np.float32), False),
        (np.array([0, 1, 2, -9]), False),
        (np.array([0.5], np.float16), False),
        (np.full(100, np.nan, np.float32), False),
        (np.array([], np.float32), False),
        (np.array([True, False] * 20), True),
        (np.array([0.25, 0.5], np.float32), True),
        (np.array([123456]), True),
        (np.array(["word"], object), True),
        (np.array(["", ""], object), False),
    ],
)
def test_what_tells_something(array: np.ndarray, told: bool) -> None:
    assert plain(array) != told


@pytest.mark.parametrize(
    "array",
    [
        np.array([-5, 120, 7], np.int8),
        np.array([2**60, 0], np.uint64),
        np.array([True, False, True]),
        np.array(["some", "words here"], object),
        np.array([1e-3, np.inf, -np.inf], np.float16),
        np.array([1 + 2j, 3], np.complex64),
        np.array(7.5),
    ],
)
def test_any_type_can_be_random(array: np.ndarray) -> None:
    case = Case(private().model, {"blood_pressure": array})
    made = randomised(case, ["blood_pressure"], 0).inputs["blood_pressure"]
    assert isinstance(made, np.ndarray)
    assert made.shape == array.shape
    assert made.dtype == array.dtype
    again = randomised(case, ["blood_pressure"], 0).inputs["blood_pressure"]
    assert np.array_equal(made, np.asarray(again))


ORACLE = """
def interesting(case):
    '''A MatMul by a weight above 100.'''
    import onnx
    weights = [onnx.numpy_helper.to_array(t) for t in case.model.graph.initializer]
    kinds = [node.op_type for node in case.model.graph.node]
    return "MatMul" in kinds and any(w.size > 1 and w.min() > 100.5 for w in weights)
"""


def test_a_scrubbed_reduction(tmp_path: Path) -> None:
    model = PRIVATE.replace(
        "0.11,0.22,0.33,0.44,0.55,0.66,0.77,0.88", "101.11,102.22,103.5,104,105,106,107,108"
    )
    oracle = tmp_path / "oracle.py"
    oracle.write_text(ORACLE)
    case = case_of(model, blood_pressure=[[120.5, 80.25, 119.75, 81.5]])
    out = tmp_path / "out"
    result = reduce(case, str(oracle), output=out, scrub=True)
    assert result.scrubbed is not None
    assert result.confirmed
    assert not (out / "near-miss.onnx").exists()
    assert "Scrubbed" in (out / "ISSUE.md").read_text()
    text = str(onnx.load(out / "model.onnx"))
    assert "acme" not in text
    assert "blood" not in text
    assert any("journal.jsonl" in note for note in result.notes)
    assert {"report.html", "ISSUE.md", "summary.json", "repro.py"} <= {
        p.name for p in out.iterdir()
    }
    for path in out.rglob("*"):
        if path.is_file() and path.name != "journal.jsonl":
            content = path.read_bytes()
            for secret in ("acme", "blood", "patients", "secret", "diagnosis", "hidden_units"):
                assert secret.encode() not in content, path
            assert str(tmp_path).encode() not in content, path


def test_what_was_said_is_scrubbed_too() -> None:
    said = f"{Path.home()}/acme/net.onnx: hidden_units is odd, blood_pressure too (Relu, y)"
    plain_case = case_of(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }',
        x=[1, 0],
    )
    result = result_of(
        plain_case,
        original=private(),
        scrubbed=Scrubbed((), ()),
        notes=(said,),
        verdict=Verdict.interesting(said),
        settings={"timeout": 3, "set": {"tool": [said]}},
    )
    told = public(result)
    hidden = "net.onnx: … is odd, … too (Relu, y)"
    assert told.notes == (hidden,)
    assert told.verdict.detail == hidden
    assert told.settings == {"timeout": 3, "set": {"tool": [hidden]}}
    assert public(replace(result, scrubbed=None)).notes == (said,)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plugin:/home/ann/acme/mine.py", "plugin:mine.py"),
        ("file:///home/ann/acme/net.onnx", "net.onnx"),
        ("web@1.23.2:webgpu,dist=/home/ann/dist", "web@1.23.2:webgpu,dist=dist"),
        ("plugin:C:\\Users\\ann\\mine.py", "plugin:mine.py"),
        ("web:webgpu,cdp=http://127.0.0.1:9222/a/b", "web:webgpu,cdp=http://127.0.0.1:9222/a/b"),
        (0.001, "0.001"),
    ],
)
def test_settings_are_shown_without_folders(value: object, shown: str) -> None:
    plain_case = case_of(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }',
        x=[1, 0],
    )
    result = result_of(plain_case, scrubbed=Scrubbed((), ()))
    assert place(result, value) == shown
    assert place(replace(result, scrubbed=None), value) == str(value)


def test_no_text_shows_the_folder_of_a_side() -> None:
    spec = parse_spec("plugin:/home/ann/acme/mine.py")
    result = result_of(
        case_of(
            '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {y = Relu(x)}',
            x=[1, 0],
        ),
        scrubbed=Scrubbed((), ()),
        sides=(Side("backend", spec, "1", None, "it fails"),),
    )
    told = public(result)
    for text in (issue(told, ["repro.py"]), report(told, Way((), {})), json.dumps(summary(told))):
        assert "mine.py" in text
        assert "/home" not in text
        assert "acme" not in text


def test_privacy_of_an_ordinary_result() -> None:
    told = privacy(result_of(private()))
    assert "the values of blood_pressure, acme_weights, secret" in told
    assert "hidden_units" in told
    made_up = privacy(result_of(private(), inputs_made_up=True))
    assert "the values of acme_weights, secret" in made_up
    clean = case_of(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }',
        x=[1, 0],
    )
    assert "plain ones" in privacy(result_of(clean, original=private()))


def test_two_dims_never_get_one_name() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>'
        "g (float[acme_a, acme_b] x) => (float[acme_a, acme_b] y) { y = Abs(x) }"
    )
    case = Case(ir.from_proto(model), {"x": np.ones((2, 3), np.float32)})
    for name in ("acme_a", "acme_b"):
        case = _with_dims(case, [Dim(name)])
    shape = case.model.graph.inputs[0].shape
    assert shape is not None
    assert [str(dim) for dim in shape] == ["d0", "d1"]
