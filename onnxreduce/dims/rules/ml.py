"""Classical machine learning: rows are free; columns are features that attributes describe."""

from __future__ import annotations

from onnxreduce.dims.expr import Expr, total
from onnxreduce.dims.rules import rule
from onnxreduce.dims.site import Site

ML = "ai.onnx.ml"


@rule("Binarizer", "LabelEncoder", "Normalizer", domain=ML)
def same_shape(n: Site) -> None:
    n.out(n.ax(0))


@rule("Imputer", "Scaler", domain=ML)
def by_feature(n: Site) -> None:
    x = n.ax(0)
    names = ("offset", "scale", "imputed_value_floats", "imputed_value_int64s")
    if any(n.given(name) and len(n.node.attributes[name].value) > 1 for name in names):
        n.freeze(x[-1])
    n.out(x)


@rule(
    *("LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor"),
    *("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "OneHotEncoder"),
    domain=ML,
)
def by_row(n: Site) -> None:
    """One result for each row of features."""
    x = n.ax(0)
    encodes = n.op_type == "OneHotEncoder"
    if not encodes:
        for axis in x[1:]:
            n.freeze(axis)
    rows = x if encodes else x[:1] if len(x) > 1 else ()
    for j in range(len(n.node.outputs)):
        if n.wants(j):
            n.out((*rows, *map(n.rigid, n.shape_out(j)[len(rows) :])), j)


@rule("ArrayFeatureExtractor", domain=ML)
def feature_extractor(n: Site) -> None:
    x, indices = n.ax(0), n.ax(1)
    n.clamp(1, x[-1])
    lead: tuple[Expr, ...] = x[:-1] if len(x) > 1 else (n.rigid(1),)
    n.out((*lead, indices[-1]))


@rule("FeatureVectorizer", domain=ML)
def feature_vectorizer(n: Site) -> None:
    inputs = [n.ax(i) for i in range(n.arity)]
    for axes in inputs[1:]:
        n.unify(inputs[0][0], axes[0])
    n.attr("inputdimensions", lambda size: [size(axes[-1]) for axes in inputs])
    n.out((inputs[0][0], total(axes[-1] for axes in inputs)))
