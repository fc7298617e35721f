"""Pooling: windows whose kernel is an attribute and gives way where the input gets too small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onnxreduce.dims.expr import UNIT, Axes, Expr, product
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly
from onnxreduce.dims.solve import Size
from onnxreduce.dims.windows import Window, windows


@rule("MaxPool", "AveragePool", "LpPool")
def pool(n: Site) -> None:
    x = n.ax(0)
    out = (*x[:2], *pooled(n, x[2:], n.shape_out()[2:]))
    n.out(out)
    n.out(out, 1)


@rule("MaxpoolWithMask", domain="com.microsoft")
def pool_with_mask(n: Site) -> None:
    n.match(n.ax(0), n.ax(1))
    pool(n)


@rule("NhwcMaxPool", domain="com.microsoft")
def pool_last(n: Site) -> None:
    x = n.ax(0)
    n.out((x[0], *pooled(n, x[1:-1], n.shape_out()[1:-1]), x[-1]))


@rule("QLinearAveragePool", domain="com.microsoft")
def quantised_pool(n: Site) -> None:
    if n.number("channels_last"):
        pool_last(n)
    else:
        pool(n)


def pooled(n: Site, x: Axes, sizes: Sequence[int]) -> list[Expr]:
    """The spatial axes of the output, from those of the input and their sizes now."""
    shape = n.numbers("kernel_shape")
    kernel = [n.fresh(size, ("kernel_shape", i)) for i, size in enumerate(shape)]
    frames = windows(n, x, kernel)
    out: list[Expr] = []
    for i, (frame, axis, current) in enumerate(zip(frames, x, sizes, strict=True)):
        if frame.ceil and frame.out(axis.size, frame.kernel.size) != current:
            frames[i] = frame = replace(frame, ceil=False)
        if frame.out(axis.size, frame.kernel.size) != current:
            raise Unruly("the output is not what kernel, pads and strides give")
        if frame.same:
            n.check(_reaches(frame, axis), "a kernel shorter than its stride")
        if frame.keeps_size:
            out.append(axis)
            continue

        def places(size: Size, frame: Window = frame, axis: Expr = axis) -> int:
            return frame.out(size(axis), fitting(frame, size(axis), size(frame.kernel)))

        out.append(n.driven(current, places, "window"))
    lengths = list(zip(frames, x, strict=True))

    def pads(size: Size) -> list[int]:
        pairs = [f.pads_for(fitting(f, size(axis), size(f.kernel))) for f, axis in lengths]
        return [before for before, _ in pairs] + [after for _, after in pairs]

    n.attr(
        "kernel_shape",
        lambda size: [fitting(f, size(axis), size(f.kernel)) for f, axis in lengths],
    )
    n.attr("pads", pads)
    return out


def _reaches(frame: Window, axis: Expr) -> Callable[[Size], bool]:
    """SAME padding is what the windows need beyond the data: it may not be negative."""

    def holds(size: Size) -> bool:
        last = (-(-size(axis) // frame.stride) - 1) * frame.stride
        return last + (size(frame.kernel) - 1) * frame.dilation + 1 >= size(axis)

    return holds


def fitting(frame: Window, length: int, kernel: int) -> int:
    """The largest kernel that fits into the padded axis."""
    while kernel > 1 and not frame.same:
        if length + sum(frame.pads_for(kernel)) >= (kernel - 1) * frame.dilation + 1:
            break
        kernel -= 1
    return kernel


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(n: Site) -> None:
    x = n.ax(0)
    n.out((x[0], x[1], *(UNIT for _ in x[2:])))


@rule("MaxUnpool")
def unpool(n: Site) -> None:
    """Indices count the elements of the whole output."""
    x = n.ax(0)
    n.match(n.ax(1), x)
    kernel = n.numbers("kernel_shape")
    strides = n.numbers("strides", [1] * len(kernel))
    pads = n.numbers("pads", [0] * 2 * len(kernel))
    out: list[Expr] = []
    for at, axis in enumerate(x[2:]):
        more = kernel[at] - pads[at] - pads[at + len(kernel)]
        whole = (axis.size - 1) * strides[at] + more
        out.append(
            n.driven(
                whole,
                lambda size, axis=axis, at=at, more=more: (size(axis) - 1) * strides[at] + more,  # type: ignore[misc]
                "window",
            )
        )
    if n.has(2):
        vector = n.prov(2)
        n.fix(2)
        if vector is None:
            raise Unruly("an output shape of unknown origin")
        least = out
        out = [n.fresh(size, ("output_shape", at)) for at, size in enumerate(n.shape_out()[2:])]
        n.check(
            lambda size: all(size(a) >= size(b) for a, b in zip(out, least, strict=True)),
            "the output is shorter than its windows",
        )
        for axis, element in zip((*x[:2], *out), vector.elements, strict=True):
            n.sized(axis, element)
    result = (*x[:2], *out)
    indices = n.node.inputs[1]
    producer = None if indices is None else indices.producer()
    if producer is None or producer.op_type != "MaxPool":  # the places that one found are inside
        n.clamp(1, product(result))
    n.out(result)
