"""What a protobuf message will take in memory, told from its bytes before it is parsed.

Two bytes make an empty node, which takes a thousand when it is read: a file of some megabytes can
fill any machine. So the bytes are walked first, by the schema and without building anything
(wire format: https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import (  # type: ignore[import-untyped]
    Descriptor,
    FieldDescriptor,
)
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from onnxreduce.errors import UsageError

FREE = 1 << 27
"""Every message may take this many bytes."""

RATIO = 16
"""Larger ones may take this many times their size: real nodes are small, and cost some 10 times
as much as objects."""

NUMBERS_RATIO = 4
"""Packed integers, each in a byte or more, may take this many times the message's size."""

WIDE, NARROW = 28, 14
"""Bytes that a packed integer takes while it becomes part of an array; measured."""

COST = {
    onnx.NodeProto.DESCRIPTOR.full_name: 1536,
    onnx.TensorProto.DESCRIPTOR.full_name: 1024,
    onnx.FunctionProto.DESCRIPTOR.full_name: 1024,
    onnx.GraphProto.DESCRIPTOR.full_name: 1024,
    onnx.AttributeProto.DESCRIPTOR.full_name: 512,
    onnx.ValueInfoProto.DESCRIPTOR.full_name: 512,
}
"""Bytes that a message takes as an object, here and in protobuf together; measured."""

MESSAGE, FIELD = 256, 96
"""Bytes of any other message, and of a string."""

TAG = 8
DEEPEST = 100
"""Protobuf refuses what is nested deeper."""

_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_WIDE = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)
_NARROW = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_ENUM)
_Fields = dict[int, Any]


def parse(path: Path, content: bytes, into: Message) -> None:
    """Parse a message from a file that may come from a stranger.

    Raises:
        UsageError: it would take much more memory than the file is large.
        DecodeError: it is no such message.
    """
    # Nothing costs more than an empty node, which has two bytes.
    if len(content) // 2 * max(COST.values()) > FREE:
        scan = _Scan(content)
        scan.message(0, len(content), into.DESCRIPTOR, 0)
        if scan.is_too_much:
            raise UsageError(
                f"{path} has {len(content)} bytes, but would take at least {scan.total} in "
                "memory: refused (numbers take the least as raw data)"
            )
    into.ParseFromString(content)


class _Scan:
    """A walk over the bytes of a message, which ends as soon as they cost too much.

    Attributes:
        total: bytes that the message would take, as far as it has been walked.
    """

    def __init__(self, content: bytes) -> None:
        self.total = 0
        self._numbers = 0
        self._content = content

    @property
    def is_too_much(self) -> bool:
        size = len(self._content)
        return self.total > FREE + RATIO * size or self._numbers > FREE + NUMBERS_RATIO * size

    def message(self, at: int, end: int, kind: Descriptor, depth: int) -> None:
        """Adds the cost of the message that lies between two places.

        Raises:
            DecodeError: it is cut off.
        """
        fields = _fields(kind)
        while at < end and not self.is_too_much:
            tag, at = self._varint(at, end)
            field = fields.get(tag >> 3)
            self.total += TAG
            wire = tag & 7
            if wire == _VARINT:
                _, at = self._varint(at, end)
            elif wire == _BYTES:
                length, at = self._varint(at, end)
                if at + length > end:
                    raise DecodeError("cut off")
                self._field(at, at + length, field, depth)
                at += length
            elif wire == _FIXED32:
                at += 4
            elif wire == _FIXED64:
                at += 8
            elif wire not in (_GROUP, _END_GROUP):  # groups are unknown fields, kept as bytes
                raise DecodeError("no such wire type")

    def _field(self, at: int, end: int, field: Any, depth: int) -> None:
        if isinstance(field, Descriptor):
            self.total += COST.get(field.full_name, MESSAGE)
            if depth < DEEPEST:
                self.message(at, end, field, depth + 1)
        elif field == "text":
            self.total += FIELD + end - at
        elif isinstance(field, int):
            packed = np.frombuffer(self._content, np.uint8, end - at, at)
            cost = field * int(np.count_nonzero(packed < 128))  # the last byte of each
            self._numbers += cost
            self.total += cost
        else:
            self.total += end - at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self._content[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        raise DecodeError("cut off")


@cache
def _fields(kind: Descriptor) -> _Fields:
    """What each field holds: a message, text, integers (then what one costs), or just bytes."""
    return {number: _content_of(field) for number, field in kind.fields_by_number.items()}


def _content_of(field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return field.message_type
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        repeated = field.name in ("strings", "string_data")
        return "text" if repeated or field.type == FieldDescriptor.TYPE_STRING else None
    return WIDE if field.type in _WIDE else NARROW if field.type in _NARROW else None
