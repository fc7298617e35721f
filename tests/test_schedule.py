"""The order of the stages, and when each is worth running."""

from __future__ import annotations

import pytest

from onnxreduce import schedule
from onnxreduce.case import Case
from onnxreduce.passes import cuts
from tests.drive import case_of
from tests.models import Builder, value


def names(stages: list[schedule.Stage]) -> list[str]:
    return [stage.name for stage in stages]


def line(count: int) -> Case:
    b = Builder()
    top = "x"
    for _ in range(count):
        top = b.op("Relu", top)
    return case_of(b.model([value("x", [2])], [value(top, [2])]))


def test_structure_comes_before_sizes_and_sizes_before_values() -> None:
    order = names(schedule.stages())
    assert order[0] == "outputs"
    for earlier, later in [
        ("cuts", "chunks"),
        ("chunks", "nodes"),
        ("nodes", "dims"),
        ("dims", "values"),
        ("values", "tidy"),
    ]:
        assert order.index(earlier) < order.index(later)


def test_every_stage_runs_once_a_round() -> None:
    order = names(schedule.stages(suspects=lambda case: []))
    assert len(order) == len(set(order))


@pytest.mark.parametrize("cuts_allowed", [True, False])
def test_the_small_passes_are_always_there(cuts_allowed: bool) -> None:
    order = names(schedule.stages(cuts=cuts_allowed))
    assert set(schedule.SMALL) <= set(order)


def test_without_cuts_no_value_becomes_an_input() -> None:
    order = names(schedule.stages(cuts=False, suspects=lambda case: ["x"]))
    assert not {"cuts", "chunks", "nodes", "suspects"} & set(order)
    assert {"prefix", "regions", "bypass"} <= set(order)


def test_suspects_come_before_the_cuts() -> None:
    assert "suspects" not in names(schedule.stages())
    order = names(schedule.stages(suspects=lambda case: []))
    assert order.index("outputs") < order.index("suspects") < order.index("cuts")


def test_stages_say_whether_they_need_recorded_values() -> None:
    stages = {stage.name: stage for stage in schedule.stages(suspects=lambda case: [])}
    assert stages["cuts"].records
    assert stages["suspects"].records
    assert not stages["outputs"].records


def test_coarse_passes_run_on_many_nodes_only() -> None:
    stages = {stage.name: stage for stage in schedule.stages()}
    small, large = line(3), line(40)
    for name in ("regions", "chunks"):
        assert stages[name].wanted(large)
        assert not stages[name].wanted(small)
    assert stages["merge"].wanted(small)
    assert not stages["merge"].wanted(large)
    assert stages["nodes"].wanted(small)
    assert stages["nodes"].wanted(large)


def test_guessing_is_repeated_only_when_there_are_fewer_nodes_but_still_many() -> None:
    fewer = schedule.Fewer()
    assert fewer(line(40))
    assert not fewer(line(40))
    assert fewer(line(20))
    assert not fewer(line(20))
    assert not fewer(line(5))


def test_guessing_runs_at_first_however_few_nodes_there_are() -> None:
    assert schedule.Fewer()(line(2))


def test_a_stage_is_made_from_a_module() -> None:
    stage = schedule.stage("cuts")
    assert (stage.name, stage.run, stage.records) == (cuts.NAME, cuts.edits, True)
    with pytest.raises(ModuleNotFoundError):
        schedule.stage("nothing_of_the_kind")
