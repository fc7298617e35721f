"""Real networks with random weights: each planted bug ends at its threshold, the rest at its least.

The networks are onnx's light ones with weights of the real sizes; the hand-made ones are smaller
than real ones of their kinds, so their figures are as well.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from networks import NETWORKS
from test_dims import light, random_trials, recorded
from test_pass_dims import attribute, input_shape, shrink, weights

from onnxreduce.case import Case
from onnxreduce.dims import Change, Resize, analyse

LIGHT = ("resnet50", "densenet121", "inception_v1", "inception_v2", "shufflenet", "squeezenet")

SMALLEST = {
    "resnet50": 271,
    "densenet121": 4594,
    "inception_v1": 220,
    "inception_v2": 603,
    "shufflenet": 557,
    "squeezenet": 61,
}
"""Elements of inputs and weights when no size matters."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", LIGHT)
def test_everything_at_its_least(name: str) -> None:
    run = shrink(light(name), lambda case: True)
    assert run.case.size.elements <= SMALLEST[name]
    assert run.invalid == 0


def channels(case: Case) -> int:
    return max(shape[0] for shape in weights(case, "Conv"))


def kernel(case: Case) -> int:
    return max(shape[3] for shape in weights(case, "Conv"))


def groups(case: Case) -> int:
    return max(map(int, attribute(case, "Conv", "group")))  # type: ignore[arg-type]


def longest(case: Case) -> int:
    shapes = [input_shape(case, name) for name in case.inputs]
    return max(map(max, [*shapes, *weights(case, "Conv")]))


PLANTED: list[tuple[str, Callable[[Case], int], int, int, int]] = [
    ("resnet50", channels, 65, 655, 31),
    ("densenet121", channels, 65, 5106, 31),
    ("inception_v1", channels, 65, 604, 30),
    ("shufflenet", channels, 65, 2021, 28),
    ("squeezenet", channels, 65, 253, 31),
    ("squeezenet", channels, 37, 169, 28),
    ("shufflenet", groups, 3, 581, 14),
    ("inception_v1", kernel, 5, 224, 16),
    ("squeezenet", longest, 9, 69, 18),
]
"""What the bug counts, from where on, the elements of inputs and weights that are left, and the
calls that it may take."""


@pytest.mark.parametrize(("name", "count", "least", "elements", "calls"), PLANTED)
def test_planted_thresholds(
    name: str, count: Callable[[Case], int], least: int, elements: int, calls: int
) -> None:
    run = shrink(light(name), lambda case: count(case) >= least)
    assert count(run.case) == least
    assert run.case.size.elements <= elements
    assert run.calls <= calls
    assert run.invalid == 0


def narrow(case: Case) -> Case:
    """An eighth of all that is wide: as many classes, and a run takes a tenth of the time."""
    wide = [entry for entry in analyse(case).classes.values() if entry.size >= 16]
    channels = [entry for entry in wide if not entry.windowed and not entry.kernel]
    changes = [Change(entry.anchor, entry.size // 8, soft=True) for entry in channels]
    return recorded(Resize(tuple(changes)).apply(case))


@pytest.mark.parametrize("name", LIGHT)
@pytest.mark.parametrize("loose", [True, False])
def test_random_sizes_of_light_networks(name: str, loose: bool) -> None:
    case = narrow(recorded(light(name)))
    analysis = analyse(case, loose)
    if loose and not analysis.space.distributed:
        pytest.skip("both readings are the same")
    random_trials(case, analysis, 200)


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("loose", [True, False])
def test_random_sizes_of_small_networks(name: str, loose: bool) -> None:
    case = recorded(NETWORKS[name]())
    analysis = analyse(case, loose)
    if loose and not analysis.space.distributed:
        pytest.skip("both readings are the same")
    random_trials(case, analysis, 1000)
