"""Pooling: windows whose kernel is an attribute and gives way where the input gets too small."""

from __future__ import annotations

from dataclasses import replace

from onnxreduce.dims.expr import UNIT, Expr
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly
from onnxreduce.dims.solve import Size
from onnxreduce.dims.windows import Window, cut_pads, windows


@rule("MaxPool", "AveragePool", "LpPool")
def pool(n: Site) -> None:
    x = n.ax(0)
    shape = n.numbers("kernel_shape")
    kernel = [n.fresh(size, ("kernel_shape", i)) for i, size in enumerate(shape)]
    frames = windows(n, x[2:], kernel)
    out: list[Expr] = [x[0], x[1]]
    for i, (frame, axis) in enumerate(zip(frames, x[2:], strict=True)):
        current = n.shape_out()[2 + i]
        if frame.ceil and _places(frame, axis.size, frame.kernel.size) != current:
            frames[i] = frame = replace(frame, ceil=False)
        if _places(frame, axis.size, frame.kernel.size) != current:
            raise Unruly("the output is not what kernel, pads and strides give")
        if frame.keeps_size:
            out.append(axis)
            continue

        def places(size: Size, frame: Window = frame, axis: Expr = axis) -> int:
            return _places(frame, size(axis), fitting(frame, size(axis), size(frame.kernel)))

        out.append(n.driven(current, places, "window"))
    lengths = list(zip(frames, x[2:], strict=True))

    def pads(size: Size) -> list[int]:
        pairs = [cut_pads(f, fitting(f, size(axis), size(f.kernel))) for f, axis in lengths]
        return [before for before, _ in pairs] + [after for _, after in pairs]

    n.attr(
        "kernel_shape",
        lambda size: [fitting(f, size(axis), size(f.kernel)) for f, axis in lengths],
    )
    n.attr("pads", pads)
    n.out(out)
    n.out(out, 1)


def _places(frame: Window, length: int, kernel: int) -> int:
    return frame.out(length, kernel)


def fitting(frame: Window, length: int, kernel: int) -> int:
    """The largest kernel that fits into the padded axis, its pads smaller than itself."""
    while kernel > 1:
        before, after = cut_pads(frame, kernel)
        fits = length + before + after >= (kernel - 1) * frame.dilation + 1
        if (fits or frame.same) and max(before, after) < kernel:
            break
        kernel -= 1
    return kernel


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(n: Site) -> None:
    x = n.ax(0)
    n.out((x[0], x[1], *(UNIT for _ in x[2:])))
