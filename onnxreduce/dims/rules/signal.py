"""Signal processing: frames, spectra, and blocks of images as columns."""

from __future__ import annotations

from onnxreduce.dims.expr import Expr, product
from onnxreduce.dims.provenance import Lit
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site, Unruly
from onnxreduce.dims.solve import Size


@rule("BlackmanWindow", "HammingWindow", "HannWindow")
def window(n: Site) -> None:
    length = n.fresh(n.shape_out()[0], ("size", 0))
    n.fix(0)
    _written(n, 0, length)
    n.out((length,))


def _written(n: Site, i: int, axis: Expr) -> None:
    """A size in a scalar operand."""
    vector = n.prov(i)
    if vector is None:
        n.freeze(axis)
    else:
        n.sized(axis, vector.elements[0])


def _fresh(n: Site, i: int, name: str) -> Expr:
    return n.fresh(int(n.need(i).reshape(-1)[0]), (name, 0))


def _spectrum(n: Site, length: Expr, current: int) -> Expr:
    """Frequencies of so many samples: half of them mirror the others."""
    if not n.number("onesided"):
        return length
    return n.driven(current, lambda size: size(length) // 2 + 1, "one side")


@rule("DFT")
def dft(n: Site) -> None:
    x = list(n.ax(0))
    if n.opset < 20:
        at = n.axis("axis", 1)
    else:
        at = int(n.need(2).reshape(-1)[0]) % len(x) if n.has(2) else len(x) - 2
    n.fix(1, 2)
    n.freeze(x[-1])
    length, current = x[at], n.shape_out()[at]
    if n.number("inverse") and n.number("onesided"):
        raise Unruly("one side becomes two")
    if n.has(1):
        length = _fresh(n, 1, "dft_length")
        _written(n, 1, length)
    x[at] = _spectrum(n, length, current)
    n.out((*x[:-1], n.rigid(n.shape_out()[-1])))


@rule("STFT")
def stft(n: Site) -> None:
    x = n.ax(0)
    if len(x) == 3:
        n.freeze(x[2])
    n.fix(1, 3)
    step = int(n.need(1).reshape(-1)[0])
    vector = n.prov(1)
    if vector is None or not isinstance(vector.elements[0], Lit):
        raise Unruly("a computed step")
    length = n.ax(2)[0] if n.has(2) else _fresh(n, 3, "frame_length")
    if n.has(3):
        _written(n, 3, length)
    shape = n.shape_out()
    frames = n.driven(shape[1], lambda size: (size(x[1]) - size(length)) // step + 1, "frames")
    # Where no side is left out the default is one side.
    one = n.number("onesided", 1)
    bins = n.driven(shape[2], lambda size: size(length) // 2 + 1, "one side") if one else length
    n.out((x[0], frames, bins, n.rigid(2)))


@rule("MelWeightMatrix")
def mel_weights(n: Site) -> None:
    bins = n.fresh(n.shape_out()[1], ("num_mel_bins", 0))
    n.fix(*range(5))
    _written(n, 0, bins)
    n.out((n.rigid(n.shape_out()[0]), bins))


@rule("Col2Im")
def columns_to_image(n: Site) -> None:
    """Blocks of an image, one a column, are added up where they overlap."""
    x, count = n.ax(0), n.sh(1)[0]
    image = [n.fresh(size, ("image_shape", at)) for at, size in enumerate(n.need(1).tolist())]
    block = [n.fresh(size, ("block_shape", at)) for at, size in enumerate(n.need(2).tolist())]
    n.fix(1, 2)
    for i, axes in ((1, image), (2, block)):
        vector = n.prov(i)
        for at, axis in enumerate(axes):
            if vector is None:
                n.freeze(axis)
            else:
                n.sized(axis, vector.elements[at])
    strides = n.numbers("strides", [1] * count)
    dilations = n.numbers("dilations", [1] * count)
    pads = n.numbers("pads", [0] * 2 * count)

    def places(size: Size, at: int) -> int:
        reach = (size(block[at]) - 1) * dilations[at] + 1
        return (size(image[at]) + pads[at] + pads[at + count] - reach) // strides[at] + 1

    steps = [
        n.driven(places(lambda e: e.size, at), lambda size, at=at: places(size, at), "places")  # type: ignore[misc]
        for at in range(count)
    ]
    channels = n.fresh(n.shape_out()[1])
    n.unify(x[1], product((channels, *block)))
    n.unify(x[2], product(steps))
    n.out((x[0], channels, *image))
