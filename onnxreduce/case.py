"""The test case: a model and the inputs that show the bug.

A case is immutable by convention and by habit: nobody changes `case.model` in place; an edit
works on `case.copy_model()`, which shares every tensor with the original, and makes a new case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np
import onnx_ir as ir

from onnxreduce.cloning import clone_model
from onnxreduce.encoding import Encoded, encode
from onnxreduce.proto import Payload
from onnxreduce.shapes import ValueType
from onnxreduce.size import Size, bulk, measure
from onnxreduce.tensors import Array, array_digest, graphs, nested, tensor_digest, tensors

__all__ = ["Case", "InputValue", "Recording", "declared_inputs", "graphs", "nested", "tensors"]

InputValue = Array | list[Array] | None
"""A tensor; a list for a sequence; ``None`` for an empty optional."""


class Recording(Protocol):
    """Every intermediate value of a case, as recorded on a trusted backend."""

    made_up: bool
    """Whether the values were invented, because no backend runs the case."""

    def get(self, name: str) -> InputValue:
        """The recorded tensor or sequence, or ``None`` when the value was not recorded."""

    def type_of(self, name: str) -> ValueType | None:
        """Type and symbolic shape by inference on the model that was recorded."""


@dataclass(frozen=True, eq=False)
class Case:
    """A model with inputs.

    Attributes:
        model: the model; shared, never changed in place.
        inputs: by graph-input name. Initializers that are also graph inputs (IR version 3) need
            no entry.
        recording: intermediate values that are still right for this case, or ``None`` when an
            edit changed what the model computes. Not part of the case's identity.
    """

    model: ir.Model
    inputs: Mapping[str, InputValue]
    recording: Recording | None = None

    def __post_init__(self) -> None:
        # Callers may give NumPy scalars where a tensor of rank 0 is meant.
        inputs = {
            name: value if value is None or isinstance(value, list) else np.asarray(value)
            for name, value in self.inputs.items()
        }
        object.__setattr__(self, "inputs", MappingProxyType(inputs))

    @cached_property
    def size(self) -> Size:
        """How big the case is, in an order that every accepted edit must decrease."""
        return measure(self.model, self.inputs)

    @cached_property
    def _bulk(self) -> tuple[int, int, int]:
        return self.size[:3] if "size" in self.__dict__ else bulk(self.model, self.inputs)

    def is_smaller(self, other: Case) -> bool:
        """Whether the size is below another's; most often known long before the whole size."""
        if self._bulk != other._bulk:
            return self._bulk < other._bulk
        return self.size < other.size

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical model, its tensors and the inputs."""
        hasher = hashlib.sha256(self.encoded.content)
        for payload in self.payloads:
            hasher.update(tensor_digest(payload.tensor).encode())
        for name in sorted(self.inputs):
            value = self.inputs[name]
            arrays = value if isinstance(value, list) else [] if value is None else [value]
            hasher.update(f"{name}\0{type(value).__name__}\0".encode())
            for array in arrays:
                hasher.update(array_digest(array).encode())
        return hasher.hexdigest()

    @property
    def payloads(self) -> list[Payload]:
        """The tensors whose bytes the skeleton leaves out, and where they belong."""
        return self.encoded.payloads

    @cached_property
    def encoded(self) -> Encoded:
        """The canonical model without the bytes of tensors above 1 kB."""
        return encode(self.model)

    def copy_model(self) -> ir.Model:
        """A model that may be changed in place; its tensors are shared."""
        return clone_model(self.model)

    def same_values(self, model: ir.Model, inputs: Mapping[str, InputValue]) -> Case:
        """A case whose surviving values are what they were: the recording stays right."""
        return Case(model, inputs, self.recording)

    def with_recording(self, recording: Recording | None) -> Case:
        other = replace(self, recording=recording)
        # Size, digest and skeleton do not depend on it, and cost milliseconds for each 100 MB.
        known = ("size", "_bulk", "digest", "encoded")
        other.__dict__.update(
            {name: self.__dict__[name] for name in known if name in self.__dict__}
        )
        return other


def declared_inputs(model: ir.Model) -> list[ir.Value]:
    """The inputs that a caller must feed: graph inputs without an initializer of their own."""
    return [value for value in model.graph.inputs if value.name not in model.graph.initializers]
