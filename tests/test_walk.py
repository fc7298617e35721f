"""A walk can be taken again from any of its questions."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.edits import Proposals
from onnxreduce.schedule import Stage
from onnxreduce.surgery import DeleteNodes
from onnxreduce.walk import Position, Walk

LINE = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] a) => (float[2] d) {
    b = Relu (a) c = Relu (b) d = Relu (c) }"""


def singles(case: Case) -> Proposals:
    for node in case.model.graph:
        yield DeleteNodes((str(node.outputs[0].name),))


def as_it_is(case: Case) -> Case:
    return case


def first_yes(walk: Walk) -> list[Position]:
    """All questions from here on, when the first one has a yes and all others a no."""
    positions: list[Position] = []
    while walk.question is not None:
        positions.append(walk.position())
        walk.answer(len(positions) == 1, as_it_is)
    return positions


def all_no(walk: Walk) -> list[tuple[str, str]]:
    asked = []
    while walk.question is not None:
        asked.append((walk.question.stage, walk.question.edit))
        walk.answer(False, as_it_is)
    return asked


def test_another_walk_goes_on_from_any_question_as_the_first_one_did() -> None:
    row = [Stage("one", singles), Stage("two", singles)]
    walk = Walk(Case(ir.from_proto(onnx.parser.parse_model(LINE)), {}), row)
    walk.go_on(as_it_is)
    positions = first_yes(walk)
    questions = [(place.question.stage, place.question.edit) for place in positions]
    assert {place.round for place in positions} == {1, 2}
    for place, at in enumerate(positions[1:], 1):
        assert all_no(Walk.at(at)) == questions[place:]
        for earlier in positions[:place]:  # some of them in the same pass a round before
            assert all_no(Walk.at(earlier).follow(at)) == questions[place:]
