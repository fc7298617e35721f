"""Shrinking the dims of everything that a case stores, consistently.

`analyse(case)` gives the `Analysis`: its `classes` are the sizes that are free, `plan` turns sizes
for some of them into sizes for all or says why that cannot be, and `Resize` is the edit that
brings a plan about. How it works is told in `expr.py`.
"""

from onnxreduce.dims.analysis import Analysis, analyse
from onnxreduce.dims.classes import AxisClass
from onnxreduce.dims.resize import Change, Resize

__all__ = ["Analysis", "AxisClass", "Change", "Resize", "analyse"]
