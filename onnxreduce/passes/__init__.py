"""Passes: one file each, with ``NAME``, a docstring that says why, and ``edits(case)``.

To add one, copy the smallest (`outputs.py`), and give it its place in `onnxreduce/schedule.py`.
"""
