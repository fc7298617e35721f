"""Reduces real bugs in released software by the ready-made oracles alone: one command each.

    python benchmarks/commands.py CASES [NAME...] [--structure] [--without-suspects]

CASES as for `real.py`: a folder a bug, with `big.py OUT.onnx` (writes a large model that shows it)
and `model_min.py OUT.onnx` (the smallest model known). The command is printed, then the node
counts: before, after, and of the smallest known form, and the calls after which the result had
as few nodes as that. One question is asked at a time, so that calls can be compared.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from real import count_nodes

OPTIMISED = "--expected ort:opt=disable_all --actual ort"
COMMANDS = {
    "ort_divmul_int": OPTIMISED,
    "ort_if_branch_divmul_int": OPTIMISED,
    "ort_layernorm_pow": OPTIMISED,
    "ort_matmul_transpose_vec": OPTIMISED,
    # A step of the quantised output is no bug: 3 % of the largest value is tolerated.
    "ort_qdq_conv_axis1": "--oracle differs --set expected=ort:opt=disable_all --set actual=ort "
    "--set scale=0.03",
    "ort_gemm_identity_transpose": "--expected ort --actual ort@1.28.0",
    "ref_lpnorm_p1": "--expected ort --actual reference",
    # A command, because the tools may live in another environment than onnxreduce.
    "optimizer_reshape_zero": "--oracle rewrites --set 'tool={python} -c \"import sys, onnx, "
    "onnxoptimizer as o; onnx.save(o.optimize(onnx.load(sys.argv[1]), "
    "[\\'eliminate_consecutive_idempotent_ops\\']), sys.argv[2])\" {{model}} {{output}}'",
    "slim_expand_dynamic": "--oracle rewrites --set 'tool={python} -m onnxslim {{model}} "
    "{{output}}'",
    "tract_pad_negative": "--oracle crashes --set backend=plugin:{here}/tract_side.py "
    "--set healthy=ort",
}
HERE = Path(__file__).parent
STRUCTURE = 40
"""Calls after which few models have a node too many."""
COMMAND = "from onnxreduce.cli import main; raise SystemExit(main())"
WITHOUT_SUSPECTS = f"""
import onnxreduce.reducer as reducer
stages = reducer.stages
reducer.stages = lambda *, cuts, suspects: stages(cuts=cuts)
{COMMAND}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(COMMANDS)}")
    parser.add_argument("--python", default=sys.executable, help="has onnxoptimizer and onnxslim")
    parser.add_argument("--structure", action="store_true", help=f"stop after {STRUCTURE} calls")
    parser.add_argument("--without-suspects", action="store_true", help="look nowhere first")
    options = parser.parse_args()
    for name in options.names or COMMANDS:
        template = COMMANDS[name].replace("\\'", "'\\''")
        arguments = template.format(python=options.python, here=HERE)
        _run(options.cases / name, arguments, options)


def _run(case: Path, arguments: str, options: argparse.Namespace) -> None:
    print(f"onnxreduce {case.name}.onnx {arguments}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        big, least, out = (Path(folder) / name for name in ("big.onnx", "min.onnx", "out"))
        for script, path in (("big.py", big), ("model_min.py", least)):
            made = [sys.executable, str(case / script), str(path)]
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        code = WITHOUT_SUSPECTS if options.without_suspects else COMMAND
        command = [sys.executable, "-c", code, str(big), "--output", str(out), "--jobs", "1"]
        if options.structure:
            command += ["--max-calls", str(STRUCTURE)]
        ran = subprocess.run(
            [*command, *shlex.split(arguments)], capture_output=True, text=True, check=False
        )
        if ran.returncode not in (0, 3):
            print(f"  status {ran.returncode}: {ran.stderr.strip().splitlines()[-1]}", flush=True)
            return
        counts = [count_nodes(onnx.load(path)) for path in (big, out / "model.onnx", least)]
        calls = next((line for line in ran.stderr.splitlines() if "oracle calls" in line), "")
        told = f"{counts[0]} -> {counts[1]} nodes, {counts[2]} known{_reached(out, counts[2])}"
        print(f"  {told}; {calls}", flush=True)


def _reached(out: Path, known: int) -> str:
    """After how many calls the nodes were as few as `known`."""
    events = map(json.loads, (out / "journal.jsonl").read_text("utf-8").splitlines())
    steps = [event for event in events if event["event"] == "accepted"]
    calls = next((step["calls"] for step in steps if step["nodes"] <= known), None)
    return ", not reached" if calls is None else f" after {calls} calls"


if __name__ == "__main__":
    main()
