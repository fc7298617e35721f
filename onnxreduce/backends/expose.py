"""A copy of a model whose outputs are all its values, written where a runtime can open it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx.external_data_helper import uses_external_data


@contextlib.contextmanager
def exposed(model_path: str, only: frozenset[str] | None = None) -> Iterator[str]:
    """A temporary copy of the model in which the values of the main graph are outputs.

    The new outputs carry no type, so the runtime's own inference decides. Values that nothing
    reads are left alone: asking for them would change which kernels run. Weights in external
    files are linked, not copied, where the file system can.

    Args:
        model_path: stays as it is.
        only: names of the values to expose; all that something reads when ``None``.

    Yields:
        The path of the copy, which is gone afterwards.
    """
    model = onnx.load(model_path, load_external_data=False)
    expose_values(model, only)
    with tempfile.TemporaryDirectory(prefix="onnxreduce-") as folder:
        for location in external_files(model):
            _link(Path(model_path).parent / location, Path(folder, location))
        path = Path(folder, "model.onnx")
        path.write_bytes(model.SerializeToString())
        yield str(path)


def expose_values(model: onnx.ModelProto, only: frozenset[str] | None = None) -> None:
    """Append outputs, in place."""
    read = set(_reads(model.graph))
    have = {output.name for output in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            wanted = name in read if only is None else name in only
            if name and wanted and name not in have:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
                have.add(name)


def external_files(model: onnx.ModelProto) -> list[str]:
    """Locations of external data, relative to the model's folder."""
    found: dict[str, None] = {}
    for tensor in _tensors(model.graph):
        if uses_external_data(tensor):
            for entry in tensor.external_data:
                if entry.key == "location":
                    found[entry.value] = None
    return list(found)


def _reads(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _reads(body)
                yield from (output.name for output in body.output)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for body in (attribute.g, *attribute.graphs):
                yield from _tensors(body)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
