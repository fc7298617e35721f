"""Is this still a model on which a runtime with a wrong ``auto_pad`` goes wrong?

The wrong runtime is played by onnx's reference evaluator with a Conv that pads on the wrong side
when it is strided, as some GPU backends have done; the right one is the same evaluator untouched.
"""

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_conv import Conv as RightConv


class Conv(RightConv):
    def _run(self, X, W, B=None, auto_pad=None, strides=None, **attributes):
        if auto_pad == "SAME_UPPER" and max(strides or [1]) > 1:
            auto_pad = "SAME_LOWER"
        return super()._run(X, W, B, auto_pad=auto_pad, strides=strides, **attributes)


def interesting(case, *, atol: float = 1e-3):
    """The wrong Conv changes an output by more than `atol`."""
    expected = ReferenceEvaluator(case.model).run(None, case.inputs)
    actual = ReferenceEvaluator(case.model, new_ops=[Conv]).run(None, case.inputs)
    return any(np.abs(e - a).max() > atol for e, a in zip(expected, actual, strict=True))
