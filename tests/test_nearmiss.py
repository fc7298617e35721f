"""The near miss, and the words for what is different."""

from __future__ import annotations

import numpy as np
import pytest
from emitting import case_of

from onnxreduce.case import Case
from onnxreduce.changes import changes
from onnxreduce.engine import Question
from onnxreduce.nearmiss import NearMisses
from onnxreduce.verdict import Verdict

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[N,1,1,2] x) => (float[?,?,?,?] y) '


def conv(
    attributes: str = 'auto_pad = "SAME_UPPER", strides = [1, 2]',
    w: str = "0,0,1",
    x: object = (((((1, 2),),),)),
    head: str = HEAD,
) -> Case:
    body = f"<float[1,1,1,3] w = {{{w}}}> {{ y = Conv <{attributes}> (x, w) }}"
    return case_of(head + body, x=np.asarray(x, np.float32).reshape(1, 1, 1, -1))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (conv('auto_pad = "SAME_UPPER", strides = [1, 1]'), ["Conv: strides [1, 2] -> [1, 1]"]),
        (conv("strides = [1, 2]"), ["Conv: auto_pad SAME_UPPER -> (default)"]),
        (conv(w="0,0,0"), ["w[0, 0, 0, 2] 1.0 -> 0.0"]),
        (conv(x=(0, 0)), ["x[0, 0, 0, 0] 1.0 -> 0.0, x[0, 0, 0, 1] 2.0 -> 0.0"]),
        (
            conv(head=HEAD.replace("17", "11").replace("N", "1")),
            ["opset ai.onnx 17 -> 11", "x: float32[N,1,1,2] fed [1, 1, 1, 2] -> float32[1,1,1,2]"],
        ),
        (
            conv(head=HEAD.replace("?,?,?,?", "1,1,1,1")),
            ["y: float32[?,?,?,?] -> float32[1,1,1,1]"],
        ),
        (
            case_of(HEAD + "{ y = Relu(x) }", x=[[[[1, 1]]]]),
            [
                "Conv y became Relu",
                "x[0, 0, 0, 1] 2.0 -> 1.0",
                "initializer w (float32[1,1,1,3]) is gone",
            ],
        ),
    ],
)
def test_changes_in_words(after: Case, words: list[str]) -> None:
    assert sorted(change.words for change in changes(conv(), after)) == sorted(words)


def test_equal_cases_have_no_changes() -> None:
    assert changes(conv(), conv()) == []


def test_long_names_do_not_bury_the_words() -> None:
    name = "n" * 4_000
    before = case_of(f"{HEAD} {{ {name} = Abs(x) y = Relu({name}) }}", x=[[[[1, 1]]]])
    after = case_of(f"{HEAD} {{ {name} = Neg(x) y = Relu({name}) }}", x=[[[[1, 1]]]])
    (change,) = changes(before, after)
    assert len(change.words) < 100


def test_the_most_telling_step_is_kept() -> None:
    near = NearMisses(conv())
    boring = Verdict.boring("agree")
    candidates = [
        conv("strides = [1, 2]", w="0,0,2"),  # two changes, one of values
        conv(w="0,0,2"),  # one
        conv("strides = [1, 1]"),  # two, of attributes
        conv("strides = [1, 2]"),  # one, of an attribute
        conv('auto_pad = "SAME_UPPER", strides = [1, 1]'),  # and of one item of its list
    ]
    for number, candidate in enumerate(candidates):
        near.asked(Question("pass", str(number), candidate), boring)
        assert near.best is not None
        assert near.best.edit == str(number)
    for candidate in reversed(candidates):
        near.asked(Question("pass", "again", candidate), boring)
    assert near.best is not None
    assert near.best.edit == "4"


def test_nothing_shows_on_zeros() -> None:
    near = NearMisses(conv())
    for candidate in (conv(w="0,0,0"), conv("strides = [1, 2]", x=(0, 0))):
        near.asked(Question("pass", "edit", candidate), Verdict.boring())
    assert near.best is None


def test_the_oracle_s_words_without_advice() -> None:
    near = NearMisses(conv())
    for said, kept in (("they agree; try other inputs", "they agree"), ("exit status 1", "")):
        near.accepted(conv())
        near.asked(Question("pass", "edit", conv("strides = [1, 2]")), Verdict.boring(said))
        assert near.best is not None
        assert near.best.verdict.detail == kept


def test_only_the_bug_s_absence_counts() -> None:
    near = NearMisses(conv())
    other = conv("strides = [1, 2]")
    for verdict in (
        Verdict.skipped("timeout"),
        Verdict.invalid("does not load"),
        Verdict.interesting("yes"),
        Verdict.boring("another bug", "nan"),
    ):
        near.asked(Question("pass", "edit", other), verdict)
    assert near.best is None


def test_an_accepted_step_makes_the_others_distant() -> None:
    near = NearMisses(conv())
    near.asked(Question("pass", "edit", conv(w="0,0,2")), Verdict.boring())
    assert near.best is not None
    near.accepted(conv("strides = [1, 2]"))
    assert near.best is None
