"""The cause in an error message: what stays the same while the model around it shrinks.

A reduction must not slip from one failure to another that begins with the same generic words,
nor stop because a name, a size or a path in the message changed. So a message is reduced to its
telling words: no names, numbers, paths, quotations or line numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import onnx

_GENERIC = """
a an and are as at be been by for from has have in into is it its of on or that the their then there
these this those to was were will with
axes axis bias data index indices input inputs kernel name names node nodes output outputs result
results scale shape shapes tensor tensors value values weight weights
"""

GENERIC = frozenset(_GENERIC.split())
"""Words that tell nothing: grammar, and words that are as likely names of values in a model."""

_NOISE = [
    (r"\[ONNXRuntimeError\] : \d+ : ", " "),
    (r"Load model from .*? failed:", " "),
    (r"Non-zero status code returned while running|Status Message:", " "),
    (r"Name:\s*'[^']*'", " "),  # the node's name, which may be empty
    (r"\bnode \([^)]*\)|\bin node \([^)]*\)|\(node:?\s*'?[^')]*'?\)", " "),
    (r"Node:\s*\S+|\bNode \([^)]*\)", " "),
    (r"\b(?:input|output|initializer|tensor|value|graph output|graph input): \S+", " "),
    (r"0x[0-9a-fA-F]+", " "),
    (
        r"(?:[A-Za-z]:)?(?:[\w.+~-]*/)+([\w.+-]+?\.(?:cc|h|cpp|hpp|cu|rs|py|ts|js|mjs))(?::\d+)*",
        r" \1 ",
    ),
    (r"(?:[\w.+~-]*/){2,}[\w.+-]*", " "),
    (r"'[^']{0,200}'|\"[^\"]{0,200}\"|`[^`]{0,200}`", " "),
    (r"\b(tensor|seq|optional|map)\([^()]*\)", " "),
]


def cause(message: str, names: Iterable[str] = (), words: int = 30) -> str:
    """The telling words of a message, in their order.

    Args:
        message: as the runtime gave it.
        names: of the model's nodes and values; they are left out wherever they stand.
        words: how many words to keep.
    """
    text = message
    known = sorted({name for name in names if len(name) > 2}, key=len, reverse=True)
    for name in known:
        if name in text:
            text = re.sub(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", " ", text)
    for pattern, instead in _NOISE:
        text = re.sub(pattern, instead, text)
    found = re.findall(r"[A-Za-z_][\w.]*[A-Za-z_]", text)
    telling = [word for word in found if len(word) > 2 and word.lower() not in GENERIC]
    return " ".join(dict.fromkeys(telling[:words]))


def model_names(model: onnx.ModelProto) -> set[str]:
    """Names of nodes and values at every depth, without those that are also operator types."""
    names: set[str] = set()
    types: set[str] = set()
    for graph in _graphs(model.graph):
        names.update(entry.name for entry in (*graph.input, *graph.output, *graph.initializer))
        names.add(graph.name)
        for node in graph.node:
            names.update((node.name, *node.input, *node.output))
            types.add(node.op_type)
    return names - types - {""}


def mentioned(message: str, model: onnx.ModelProto) -> list[str]:
    """Names of nodes and values that a message mentions, longest first."""
    found = [
        name
        for name in model_names(model)
        if re.search(rf"(?<![A-Za-z0-9_/]){re.escape(name)}(?![A-Za-z0-9_/])", message)
    ]
    return sorted(found, key=lambda name: (-len(name), name))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                if body.node:
                    yield from _graphs(body)
