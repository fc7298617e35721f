"""Operators that compute each element from the elements at the same place."""

from __future__ import annotations

from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Frozen, Site, Unruly

UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil"),
    *("Celu", "Clip", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
    *("HardSwish", "Hardmax", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "LogSoftmax"),
    *("LpNormalization", "MeanVarianceNormalization", "Mish", "Neg", "Not", "Reciprocal", "Relu"),
    *("Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus"),
    *("Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Trilu", "CumSum"),
    *("Bernoulli", "RandomNormalLike", "RandomUniformLike", "EyeLike", "LRN"),
    "CumProd",
)
BINARY = (
    *("Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul"),
    *("Or", "Pow", "Sub", "Sum", "SwiGLU", "Where", "Xor"),
)


@rule(*UNARY)
@rule("Gelu", "QuickGelu", "ScaledSiLU", "Trilu", domain="com.microsoft")
def unary(n: Site) -> None:
    """The axes of the first input; parameters beside it are scalars."""
    n.fix(*range(1, n.arity))
    n.out(n.ax(0))


@rule(*BINARY)
@rule("GatedAdd", domain="com.microsoft")
def binary(n: Site) -> None:
    if n.number("broadcast", 0):
        limited(n)
    else:
        n.out(n.broadcast(i for i in range(n.arity)))


def limited(n: Site) -> None:
    """Before opset 7 the second input is aligned at an axis of the first."""
    x, y = n.ax(0), n.ax(1)
    at = n.axis("axis", len(x) - len(y))
    n.out(n.spread([x, (*y, *(n.rigid(1) for _ in range(len(x) - at - len(y))))]))


@rule("BitCast")
def bit_cast(n: Site) -> None:
    if n.sh(0) != n.shape_out():
        raise Frozen("elements of another width")
    n.out(n.ax(0))


@rule("CastLike")
def cast_like(n: Site) -> None:
    """Only the type of the second input matters."""
    n.out(n.ax(0))


@rule("Dropout")
def dropout(n: Site) -> None:
    n.fix(1, 2)
    n.out(n.ax(0))
    n.out(n.ax(0), 1)


@rule("PRelu")
def prelu(n: Site) -> None:
    x, slope = n.ax(0), n.ax(1)
    if n.opset < 7 and len(slope) == 1 and len(x) > 1:
        slope = (*slope, *(n.rigid(1) for _ in x[2:]))
    if len(slope) > len(x):
        raise Unruly("slope has more axes than the input")
    n.out(n.spread([x, slope]))
