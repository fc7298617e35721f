"""Convolutions: channels, groups, and windows over the spatial axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onnxreduce.dims.expr import UNIT, Expr, product, total
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly
from onnxreduce.dims.solve import Size
from onnxreduce.dims.windows import Window, windows


@rule("Conv")
def conv(n: Site) -> None:
    x, w = n.ax(0), n.ax(1)
    n.out((x[0], channels(n, x[1], w), *spatial(n, x[2:], w[2:])))
    if n.has(2):
        n.unify(n.ax(2)[0], w[0])


def channels(n: Site, x: Expr, w: tuple[Expr, ...]) -> Expr:
    """Input channels are groups times what a filter sees; so are the filters."""
    groups = n.number("group", 1)
    if groups == 1:
        n.unify(x, w[1])
        return w[0]
    g = n.fresh(groups)
    n.unify(x, product((g, w[1])))
    n.unify(w[0], product((g, n.fresh(w[0].size // groups))))
    n.attr("group", lambda size: size(g))
    return w[0]


def spatial(
    n: Site, x: tuple[Expr, ...], kernel: tuple[Expr, ...], last: bool = False
) -> list[Expr]:
    """Output axes of sliding windows; a smaller kernel eats pads, so ``out = in`` stays so.

    Args:
        last: whether the channels are the last axis of the output.
    """
    frames = windows(n, x, kernel)
    sizes = n.shape_out()[1:-1] if last else n.shape_out()[2:]
    out = [slide(n, frame, axis, size) for frame, axis, size in zip(frames, x, sizes, strict=True)]
    mend_windows(n, frames)
    return out


def slide(n: Site, frame: Window, axis: Expr, current: int) -> Expr:
    if frame.out(axis.size, frame.kernel.size) != current:
        raise Unruly("the output is not what kernel, pads and strides give")
    if frame.keeps_size:
        return axis
    return n.driven(current, lambda size: frame.out(size(axis), size(frame.kernel)), "window")


def mend_windows(n: Site, frames: list[Window]) -> None:
    n.attr("kernel_shape", lambda size: [size(frame.kernel) for frame in frames])
    n.attr("pads", pads_of(frames))


def pads_of(frames: list[Window]) -> Callable[[Size], list[int]]:
    def pads(size: Size) -> list[int]:
        pairs = [frame.pads_for(size(frame.kernel)) for frame in frames]
        return [before for before, _ in pairs] + [after for _, after in pairs]

    return pads


@rule("ConvInteger")
def conv_integer(n: Site) -> None:
    x, w = n.ax(0), n.ax(1)
    n.out((x[0], channels(n, x[1], w), *spatial(n, x[2:], w[2:])))
    n.fix(2)
    if n.has(3) and n.rank(3) == 1 and n.sh(3) != (1,):
        n.unify(n.ax(3)[0], w[0])


@rule("ConvTranspose")
def conv_transpose(n: Site) -> None:
    transposed(n, 2)


@rule("ConvTransposeWithDynamicPads", domain="com.microsoft")
def conv_transpose_with_dynamic_pads(n: Site) -> None:
    """The pads are an operand, so kernels keep their size."""
    n.fix(2)
    if n.has(2):
        for axis in n.ax(1)[2:]:
            n.freeze(axis)
    transposed(n, 3, n.need(2).tolist() if n.has(2) else None)


def transposed(n: Site, bias: int, pads: list[int] | None = None) -> None:
    x, w = n.ax(0), n.ax(1)
    groups = n.number("group", 1)
    g = n.fresh(groups) if groups > 1 else UNIT
    n.unify(x[1], w[0])
    if groups > 1:
        n.unify(w[0], product((g, n.fresh(w[0].size // groups))))
        n.attr("group", lambda size: size(g))
    out = product((g, w[1]))
    if n.has(bias):
        n.unify(n.ax(bias)[0], out)
    n.out((x[0], out, *_grown(n, x[2:], w[2:], pads)))


def _grown(
    n: Site, x: tuple[Expr, ...], kernel: tuple[Expr, ...], pads: list[int] | None
) -> list[Expr]:
    """out = (in - 1)*stride + output_padding + (kernel - 1)*dilation + 1 - pads; the pads give
    way to a smaller kernel. An explicit output_shape keeps its axes."""
    frames = windows(n, x, kernel)
    if pads is not None:
        pairs = zip(pads[: len(x)], pads[len(x) :], strict=True)
        frames = [replace(f, pads=pair) for f, pair in zip(frames, pairs, strict=True)]
    extra = n.numbers("output_padding", [0] * len(x))
    shape = n.shape_out()[2:]
    if n.given("output_shape"):
        frames = _implied(n, frames, x, extra)
    out: list[Expr] = []
    grown: list[Callable[[Size], int]] = []
    for frame, axis, more, current in zip(frames, x, extra, shape, strict=True):

        def grow(size: Size, frame: Window = frame, axis: Expr = axis, more: int = more) -> int:
            kernel = size(frame.kernel)
            if frame.same:
                fits = (kernel - 1) * frame.dilation + 1 >= frame.stride
                return size(axis) * frame.stride if fits else 0
            before, after = frame.pads_for(kernel)
            reach = (kernel - 1) * frame.dilation + 1
            return (size(axis) - 1) * frame.stride + more + reach - before - after

        grown.append(grow)
        if grow(lambda expr: expr.size) != current:
            raise Unruly("the output is not what kernel, pads and strides give")
        out.append(n.driven(current, grow, "window"))
    mend_windows(n, frames)
    n.attr("output_shape", _following(n.numbers("output_shape"), grown))
    return out


def _implied(n: Site, frames: list[Window], x: tuple[Expr, ...], extra: list[int]) -> list[Window]:
    """The pads that an explicit output shape amounts to."""
    made = []
    for frame, axis, more, size in zip(frames, x, extra, n.shape_out()[2:], strict=True):
        reach = (frame.kernel.size - 1) * frame.dilation + 1
        pads = (axis.size - 1) * frame.stride + more + reach - size
        if pads < 0:
            raise Unruly("the output is longer than its windows")
        made.append(replace(frame, pads=(pads // 2, pads - pads // 2), same=False))
    return made


def _following(old: list[int], grown: list[Callable[[Size], int]]) -> Callable[[Size], list[int]]:
    """Explicit sizes, of which the last ones are spatial."""
    return lambda size: [*old[: len(old) - len(grown)], *(grow(size) for grow in grown)]


@rule("CausalConvWithState")
@rule("CausalConvWithState", domain="com.microsoft")
def causal_conv(n: Site) -> None:
    """A filter for each channel reaches back; the state holds what it reaches."""
    x, w = n.ax(0), n.ax(1)
    if len(x) != 3 or any(n.number(name) for name in ("channels_last", "state_window")):
        raise Unruly("another layout")
    if n.number("dilation", 1) != 1 or n.number("input_channels"):
        raise Unruly("dilated, or of some channels")
    n.unify(x[1], w[0])
    if n.has(2):
        n.unify(n.ax(2)[0], w[0])
    before: Expr = n.ax(3)[2] if n.has(3) else n.fresh(w[2].size - 1)
    if w[2].size > 1:
        n.unify(w[2], total((before, UNIT)))
    if n.has(3):
        n.match(n.ax(3), (*x[:2], before))
    n.out(x)
    n.out((*x[:2], before), 1)
