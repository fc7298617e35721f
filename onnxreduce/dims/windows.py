"""Sliding windows: how many places a kernel has along an axis, and how pads follow a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxreduce.dims.expr import Expr
from onnxreduce.dims.site import Site

POOLS = (
    *("MaxPool", "AveragePool", "LpPool"),
    *("QLinearAveragePool", "NhwcMaxPool", "MaxpoolWithMask"),
)


@dataclass(frozen=True, eq=False)
class Window:
    """One spatial axis of a convolution or pooling.

    Attributes:
        kernel: the kernel's axis; `kernel.size` is the size now.
        same: ``auto_pad`` is SAME_UPPER or SAME_LOWER.
        pooled: pads must be smaller than the kernel.
    """

    kernel: Expr
    stride: int
    dilation: int
    pads: tuple[int, int]
    same: bool
    ceil: bool = False
    pooled: bool = False

    @property
    def keeps_size(self) -> bool:
        """Whether the output is as long as the input for every length."""
        reach = (self.kernel.size - 1) * self.dilation
        return self.stride == 1 and (self.same or sum(self.pads) == reach)

    def pads_for(self, kernel: int) -> tuple[int, int]:
        """The pads for a smaller kernel: it eats what it no longer reaches, the larger side
        first."""
        before, after = self.pads
        for _ in range((self.kernel.size - kernel) * self.dilation):
            if after >= before and after > 0:
                after -= 1
            elif before > 0:
                before -= 1
        if self.pooled and kernel < self.kernel.size:
            before, after = min(before, kernel - 1), min(after, kernel - 1)
        return before, after

    def out(self, length: int, kernel: int) -> int:
        """Number of windows; below one when the kernel does not fit."""
        if self.same:
            return -(-length // self.stride)
        before, after = self.pads_for(kernel)
        free = length + before + after - (kernel - 1) * self.dilation - 1
        if free < 0:
            return 0
        if not self.ceil:
            return free // self.stride + 1
        count = -(-free // self.stride) + 1
        # A last window that would start in the padding after the data is dropped.
        return count - 1 if (count - 1) * self.stride >= length + before else count


def windows(n: Site, x: Sequence[Expr], kernel: Sequence[Expr]) -> list[Window]:
    """The windows that a node's attributes describe, one for each spatial axis."""
    count = len(x)
    n.analysis.kernels.extend(kernel)
    strides = n.numbers("strides", [1] * count)
    dilations = n.numbers("dilations", [1] * count)
    mode = n.text("auto_pad", "NOTSET")
    pads = n.numbers("pads", [0] * 2 * count) if mode == "NOTSET" else [0] * 2 * count
    return [
        Window(
            kernel[i],
            strides[i],
            dilations[i],
            (pads[i], pads[i + count]),
            mode.startswith("SAME"),
            bool(n.number("ceil_mode", 0)),
            n.op_type in POOLS,
        )
        for i in range(count)
    ]
