"""Which attributes of a sliding window can be: the kernel has to fit into the padded data.

An attribute that describes a tensor (a kernel, the number of groups, a hidden size) cannot change
without it: that is for the resizing of axes, which changes both.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxreduce.case import Case
from onnxreduce.edits import Conflict, key
from onnxreduce.shapes import inferred

_TIED = frozenset(
    {
        "N",
        "K",
        "bits",
        "block_size",
        "blocksize",
        "group",
        "hidden_size",
        "kv_num_heads",
        "num_groups",
        "num_heads",
        "offset_group",
        "q_num_heads",
        "qkv_hidden_sizes",
    }
)
_WEIGHTS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "DeformConv": 1, "QLinearConv": 3}
"""Which input holds the kernel, for operators that read it from one."""
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_COUNTS = frozenset({"strides", "dilations", "kernel_shape", "pooled_shape"})
"""Lists of numbers of which the least is one."""


def tied(node: ir.Node, name: str) -> bool:
    """Whether an attribute says what the shape of an operand says too."""
    if node.domain not in ("", "com.microsoft"):
        return False
    return name in _TIED or (name == "kernel_shape" and node.op_type in _WEIGHTS)


def least_of(name: str) -> int:
    """The least number that an integer attribute may hold."""
    return 1 if name in _COUNTS else 0


def check_window(case: Case, node: ir.Node) -> None:
    """Raises:
    Conflict: the node's kernel, as its attributes are now, does not fit into its data.
    """
    if node.domain != "" or not (node.op_type in _WEIGHTS or node.op_type in _POOLS):
        return
    lengths = _sizes(case, node, 0)
    kernel = _ints(node, "kernel_shape") or _sizes(case, node, _WEIGHTS.get(node.op_type, -1))
    if lengths is None or kernel is None or len(lengths) != len(kernel):
        return
    count = len(kernel)
    strides = _ints(node, "strides") or [1] * count
    dilations = _ints(node, "dilations") or [1] * count
    pads = _ints(node, "pads") or [0] * 2 * count
    if min(*strides, *dilations, *kernel) < 1:
        raise Conflict(f"{key(node)} has a stride, dilation or kernel below one")
    if node.op_type == "ConvTranspose" or node.attributes.get_string("auto_pad", "").startswith(
        "SAME"
    ):
        return
    for at, length in enumerate(lengths):
        before, after = pads[at], pads[at + count]
        reach = (kernel[at] - 1) * dilations[at] + 1
        if length + before + after < reach:
            raise Conflict(f"the kernel of {key(node)} does not fit into its input")
        if node.op_type in _POOLS and max(before, after) >= kernel[at]:
            raise Conflict(f"{key(node)} has pads as large as its kernel")


def _ints(node: ir.Node, name: str) -> list[int] | None:
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref():
        return None
    return [int(number) for number in attribute.as_ints()]


def _sizes(case: Case, node: ir.Node, i: int) -> Sequence[int] | None:
    """The spatial sizes of an input, where they are known."""
    value = node.inputs[i] if 0 <= i < len(node.inputs) else None
    if value is None or value.name is None:
        return None
    if value.const_value is not None:
        return value.const_value.shape.numpy()[2:]
    known = inferred(case.model).get(value.name)
    shape = known.shape if known is not None else value.shape
    if shape is None:
        return None
    sizes = tuple(shape)[2:]
    numbers = [dim for dim in sizes if isinstance(dim, int)]
    return numbers if len(numbers) == len(sizes) else None
