"""The runtime tract as a backend: ``plugin:benchmarks/tract_side.py``."""

import onnx
import tract


def run(model_path, inputs):
    """Feeds the inputs in the order in which the model declares them."""
    model = tract.onnx().load(model_path)
    model = model.into_model() if hasattr(model, "into_model") else model
    graph = onnx.load(model_path, load_external_data=False).graph
    feeds = [inputs[value.name] for value in graph.input if value.name in inputs]
    results = model.into_runnable().run(feeds)
    names = [value.name for value in graph.output]
    return {name: result.to_numpy() for name, result in zip(names, results, strict=True)}
