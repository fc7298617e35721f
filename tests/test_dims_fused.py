"""The operators that ONNX Runtime's optimiser makes: each shrinks to the least that it runs at."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest
from fused_attention import ATTENTION
from fused_float import FLOAT
from fused_quantised import QUANTISED
from fusible import bert, decoder, fused_bert, optimised, pixels
from networks import NETWORKS
from onnxruntime.capi import onnxruntime_pybind11_state
from test_dims import assert_valid, outputs, recorded

from onnxreduce.case import Case
from onnxreduce.dims import analyse, rules
from onnxreduce.dims.emit import emit

FUSED = {**ATTENTION, **FLOAT, **QUANTISED}


@pytest.mark.parametrize("name", sorted(FUSED))
def test_an_operator_shrinks_to_its_least(name: str) -> None:
    make, least = FUSED[name]
    case = recorded(make())
    analysis = analyse(case)
    assert not analysis.unruly
    plan = analysis.plan({}, {s: entry.least for s, entry in analysis.classes.items()})
    outputs(emit(analysis, plan))
    shapes = [tuple(map(plan.size, analysis.axes[root] or ())) for root in analysis.roots]
    assert " ".join("x".join(map(str, shape)) for shape in shapes if shape) == least
    assert_valid(case, analysis, 8, seed=3)


UNRULED = {
    "AttnLSTM": "made by no optimiser since LSTMs with attention went out of use",
    "BeamSearch": "its decoder is a subgraph",
    "BifurcationDetector": "the length of what it finds depends on values",
    "BranchwiseRMSNorm": "branches are folded into an axis that an attribute divides",
    "DynamicTimeWarping": "the length of the path depends on values",
    "EngramGate": "of one model only",
    "GatedDeltaNet": "of one model only",
    "GatedRMSNorm": "groups are folded into an axis that the scale divides",
    "GatherPacked": "rows of bytes in a packed format",
    "GreedySearch": "its decoder is a subgraph",
    "HyperConnectionPostMix": "of one model only",
    "HyperConnectionPreMix": "of one model only",
    "LinearAttentionGate": "of one model only",
    "MRotaryEmbedding": "sections of positions by attribute",
    "MatMulFpQ4": "a blob in a format of its own",
    "MoEGroupRouter": "of one model only",
    "MurmurHash3": "of integers and strings only",
    "NGramHashMapping": "of integers only",
    "NGramRepeatBlock": "what it blocks depends on values",
    "QMoE": "weights of experts in packed formats by attribute",
    "SampleOp": "a sample",
    "Sampling": "its decoder is a subgraph",
    "SparseAttention": "a layout of blocks in three operands",
    "SparseToDenseMatMul": "sparse tensors are not resized",
    "Tokenizer": "of strings",
    "UnfoldTensor": "made by no optimiser",
    "Unique": "how many values differ depends on values",
    "VarlenCausalConvWithState": "of one model only",
    "VarlenNGramHashMapping": "of integers only",
    "WhisperBeamSearch": "its decoder is a subgraph",
    "WordConvEmbedding": "made by no optimiser",
}
"""Operators of ``com.microsoft`` that ONNX Runtime runs on CPU, without a rule: why."""


def test_every_operator_has_a_rule_and_a_case_or_a_reason() -> None:
    kernels = {
        kernel.op_name
        for kernel in onnxruntime_pybind11_state.get_all_opkernel_def()
        if kernel.domain == "com.microsoft" and kernel.provider == "CPUExecutionProvider"
    }
    ruled = {op_type for domain, op_type in rules.known() if domain == "com.microsoft"}
    assert not kernels - ruled - set(UNRULED)
    assert not ruled & set(UNRULED)
    shown = {name.split(" ")[0] for name in FUSED}
    plain = {"DequantizeLinear", "QuantizeLinear"}
    assert not (kernels & ruled) - shown - plain


LEVELS = ort.GraphOptimizationLevel
LEAST = {"attention": 22, "bert": 38, "detector": 39, "embedder": 47, "pixels": 11, "speech": 48}
"""Elements of the networks at extended optimisation, with everything at its least."""


def kinds(case: Case) -> set[str]:
    return {node.op_type for node in case.model.graph if node.domain == "com.microsoft"}


def least(case: Case) -> int:
    """Elements with everything at its least; every plan that is tried must be valid."""
    analysis = analyse(case)
    assert not analysis.unruly
    assert assert_valid(case, analysis, 12, seed=3) > 4
    plan = analysis.plan({}, {s: entry.least for s, entry in analysis.classes.items()})
    outputs(emit(analysis, plan))
    return analysis.elements(plan)


@pytest.mark.parametrize("name", sorted(LEAST))
def test_networks_as_the_optimiser_leaves_them(name: str) -> None:
    make = {**NETWORKS, "bert": bert, "pixels": pixels}[name]
    case = recorded(optimised(make(), LEVELS.ORT_ENABLE_EXTENDED))
    assert kinds(case)
    assert least(case) == LEAST[name]


@pytest.mark.parametrize("name", ["detector", "shuffler", "unet"])
def test_channels_in_blocks_stay_in_blocks(name: str) -> None:
    """How many channels a block has depends on the processor; where it has no blocks, the network
    stays as it is."""
    case = recorded(optimised(NETWORKS[name](), LEVELS.ORT_ENABLE_ALL))
    analysis = analyse(case)
    assert not analysis.unruly
    assert assert_valid(case, analysis, 12, seed=3) > 4


def test_a_transformer_of_fused_operators(tmp_path: Path) -> None:
    case = recorded(fused_bert(tmp_path))
    assert kinds(case) == {"Attention", "BiasGelu", "EmbedLayerNormalization"} | {
        "SkipLayerNormalization"
    }
    assert least(case) == 24


def test_a_step_of_a_decoder() -> None:
    case = recorded(decoder())
    assert kinds(case) == {"GroupQueryAttention"}
    assert least(case) == 134
