"""What a plan says about the values of the case that was made by it: good until it is recorded."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxreduce.case import Case
from onnxreduce.dims.provenance import Vector
from onnxreduce.dims.solve import Size
from onnxreduce.tensors import Array


@dataclass(frozen=True)
class Expected:
    """Shapes of values, and the elements of small vectors.

    Attributes:
        made_up: no backend runs the model.
    """

    shapes: Mapping[str, tuple[int, ...]]
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    size: Size | None = None
    made_up: bool = False

    def array(self, name: str) -> Array | None:
        vector = self.vectors.get(name)
        if vector is None or self.size is None:
            return None
        try:
            return vector.array(self.size)
        except (ArithmeticError, ValueError):
            return None


_expected: weakref.WeakKeyDictionary[Case, Expected] = weakref.WeakKeyDictionary()


def expect(case: Case, expected: Expected) -> None:
    """Remember what a planned case will compute."""
    _expected[case] = expected


def expected(case: Case) -> Expected:
    """What is known about a case that has no recording."""
    return _expected.get(case, Expected({}))
