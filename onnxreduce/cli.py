"""The command line. ``onnxreduce MODEL --oracle ORACLE`` is the main job."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreduce import __version__
from onnxreduce.arguments import count, natural, pairs, positive, share, size, sizes, tolerance
from onnxreduce.errors import ReduceError, UsageError

if TYPE_CHECKING:
    from onnxreduce.result import Result

EPILOG = """\
exit status: 0 reduced; 1 the oracle does not find the original interesting; 2 bad usage, or a
model, inputs or oracle that cannot be used; 3 stopped early, the best so far is written; 4 the
oracle contradicts itself on the original.

also: onnxreduce locate MODEL --expected BACKEND --actual BACKEND
                                      which node goes wrong first? (onnxreduce locate --help)
      onnxreduce batch DIR --oracle ...
                                      every model below a directory, with one summary
      onnxreduce oracles | backends   what there is, and whether it is usable here
      onnxreduce backends NAME        the options of a backend, such as web
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in VERBS:
            return VERBS[arguments[0]](arguments[1:])
        return _reduce(arguments)
    except ReduceError as error:
        print(f"onnxreduce: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(
            "onnxreduce: interrupted; what was reached is in the output directory, if it is there",
            file=sys.stderr,
        )
        return 3


def _reduce(arguments: list[str]) -> int:
    options = _parsed(_parser(), arguments)
    # Imported late: --help and usage errors should not wait for onnxruntime.
    from onnxreduce.emit.closing import closing_words
    from onnxreduce.emit.summary import summary

    output = options.output or default_output(options.model)
    result = _run(options, options.model, output, options.resume)
    if not options.quiet:
        print(closing_words(result), file=sys.stderr)
    if options.json:
        print(json.dumps(summary(result), indent=2, ensure_ascii=False))
    return 3 if result.stopped_by else 0


def _run(options: argparse.Namespace, model: Path, output: Path, resume: bool) -> Result:
    from onnxreduce.progress import listener
    from onnxreduce.reducer import reduce

    oracle, settings = _oracle(options)
    return reduce(
        model,
        oracle,
        inputs=options.inputs,
        listener=listener(options.quiet),
        output=output,
        settings=settings,
        dims=sizes(options.dim),
        seed=options.seed,
        timeout=options.timeout,
        tries=options.tries,
        confirm=options.confirm,
        error=options.error,
        cpu_time=options.cpu_time,
        memory=options.memory,
        jobs=options.jobs,
        dask=options.dask,
        max_seconds=options.max_seconds,
        max_calls=options.max_calls,
        patience=options.patience,
        cuts=options.cuts,
        scrub=options.scrub,
        resume=resume,
        force=options.force,
    )


def _batch(arguments: list[str]) -> int:
    parser = _parser()
    parser.prog = "onnxreduce batch"
    parser.description = "Reduce every .onnx file below a directory, with one summary of all."
    options = _parsed(parser, arguments)
    from onnxreduce.batch import batch, status, table, write_summary

    def begins(number: int, count: int, name: str) -> None:
        if not options.quiet:
            print(f"[{number}/{count}] {name}", file=sys.stderr)

    output = options.output or default_output(options.model)
    rows = []
    for row in batch(options.model, output, options.resume, partial(_run, options), begins):
        rows.append(row)
        write_summary(rows, output)
        if not options.quiet:
            print(f"{row.model}: {row.words}", file=sys.stderr)
    print((output / "summary.json").read_text() if options.json else table(rows))
    return status(rows)


def _oracle(options: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """The oracle and its parameters: given, or two backends that should agree."""
    settings = pairs(options.set, "--set")
    names = ("expected", "actual", "atol", "rtol")
    sides = {name: value for name in names if (value := getattr(options, name)) is not None}
    if options.oracle is not None:
        if sides:
            raise UsageError(
                f"--{next(iter(sides))} goes without --oracle; give an oracle's parameters by --set"
            )
        return options.oracle, settings
    if not {"expected", "actual"} <= sides.keys():
        raise UsageError(
            "which bug? give --oracle ORACLE, or --expected BACKEND and --actual BACKEND "
            "(see: onnxreduce oracles, onnxreduce backends)"
        )
    return "differs", {**settings, **sides}


def default_output(model: Path) -> Path:
    """``<model stem>-reduced`` in the current directory."""
    return Path(f"{model.stem}-reduced")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="onnxreduce",
        description="Reduce an ONNX model to the smallest one that still shows a bug.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="the .onnx file; it is never written to")
    add(
        "--oracle",
        metavar="ORACLE",
        help="a Python file with interesting(case), an executable, or a ready-made name",
    )
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a parameter of the oracle")
    add("--expected", metavar="BACKEND", help="short for --oracle differs: the side to trust")
    add("--actual", metavar="BACKEND", help="short for --oracle differs: the side that is wrong")
    add("--atol", metavar="A", help="for --expected/--actual, as in numpy.allclose")
    add("--rtol", metavar="R", help="for --expected/--actual, as in numpy.allclose")
    _add_inputs(parser)
    _add_web_dist(parser)
    add("--output", type=Path, metavar="DIR", help="default: <model stem>-reduced")
    add(
        "--timeout",
        type=positive,
        metavar="SECONDS",
        help="for one oracle call (default: ten times the first one, at least 10)",
    )
    add(
        "--cpu-time",
        type=positive,
        metavar="SECONDS",
        help="of processor time for one oracle call, all its processes together",
    )
    add("--memory", type=size, metavar="SIZE", help="limit of an oracle call, such as 4G")
    add(
        "--tries",
        type=count,
        default=1,
        metavar="N",
        help="ask up to N times until the bug shows (for a bug that shows only sometimes)",
    )
    add(
        "--confirm",
        type=natural,
        default=0,
        metavar="N",
        help="ask N more times before accepting (for an oracle that says yes by accident)",
    )
    add(
        "--jobs",
        type=count,
        metavar="N",
        help="ask so many questions at a time, with the same result (default: one for each core; "
        "one where the oracle has something to itself, such as a GPU)",
    )
    add(
        "--dask",
        metavar="ADDRESS",
        help="ask on the workers of a Dask cluster, such as tcp://host:8786 (needs the extra dask)",
    )
    add(
        "--error",
        type=share,
        metavar="E",
        help="choose --tries and --confirm so that a verdict is wrong with this chance at most",
    )
    add("--max-seconds", type=positive, metavar="S", help="stop after this long")
    add("--max-calls", type=count, metavar="N", help="stop after this many oracle calls")
    add(
        "--patience",
        type=count,
        metavar="N",
        help="stop when this many candidates in a row were refused",
    )
    add(
        "--no-cuts",
        dest="cuts",
        action="store_false",
        help="keep to the model's own inputs: no value inside it becomes an input",
    )
    add(
        "--scrub",
        action="store_true",
        help="at the end, replace weights, inputs and names as far as the bug survives",
    )
    add("--resume", action="store_true", help="go on with the interrupted run in --output")
    add("--force", action="store_true", help="use an output directory that exists")
    add("--json", action="store_true", help="print the summary to stdout")
    add("--quiet", action="store_true", help="no progress, only errors")
    add("--version", action="version", version=f"onnxreduce {__version__}")
    return parser


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--inputs",
        type=Path,
        metavar="PATH",
        help="an .npz file or a test_data_set directory (default: beside the model, else made up)",
    )
    add(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="size of a symbolic dim when inputs are made up",
    )
    add("--seed", type=natural, default=0, metavar="N", help="of made-up inputs (default 0)")


def _add_web_dist(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--web-dist",
        type=Path,
        metavar="DIR",
        help="take onnxruntime-web from here for web backends without dist=, not from npm",
    )


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """The options; ``--web-dist`` goes to all processes that will open a backend."""
    options = parser.parse_args(arguments)
    if options.web_dist is not None:
        from onnxreduce.backends.web.dist import DIST_VARIABLE, local

        os.environ[DIST_VARIABLE] = str(local(options.web_dist))
    return options


LOCATE_EPILOG = """\
exit status: 0 found; 1 the two sides agree; 2 bad usage, or a model, inputs or backend that cannot
be used.
"""


def _locate(arguments: list[str]) -> int:
    options = _parsed(_locate_parser(), arguments)
    from onnxreduce.backends import isolated, open_backend
    from onnxreduce.compare import Tolerance
    from onnxreduce.emit.locate_page import write_page
    from onnxreduce.emit.location import plain, words
    from onnxreduce.locate import locate
    from onnxreduce.watching import Bar, Silent

    with (
        closing(open_backend(isolated(options.expected))) as expected,
        closing(open_backend(isolated(options.actual))) as actual,
    ):
        location = locate(
            options.model,
            expected,
            actual,
            inputs=options.inputs,
            tolerance=Tolerance(options.atol, options.rtol, options.scale),
            watcher=Silent() if options.quiet else Bar(),
            dims=sizes(options.dim),
            seed=options.seed,
        )
    page = write_page(location, options.model, options.output)
    if options.json:
        print(json.dumps(plain(location), indent=2, ensure_ascii=False))
    else:
        print(words(location))
    if not options.quiet:
        print(f"written to {page}", file=sys.stderr)
    return 1 if location.how == "nowhere" else 0


def _locate_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="onnxreduce locate",
        description="Find the node at which two backends part: its inputs agree, its output does "
        "not.",
        epilog=LOCATE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="the .onnx file; it is never written to")
    add("--expected", required=True, metavar="BACKEND", help="the side to trust")
    add("--actual", required=True, metavar="BACKEND", help="the side that is wrong")
    add("--atol", type=tolerance, default=1e-3, metavar="A", help="as in numpy.allclose (1e-3)")
    add("--rtol", type=tolerance, default=1e-3, metavar="R", help="as in numpy.allclose (1e-3)")
    add(
        "--scale",
        type=tolerance,
        default=0.0,
        metavar="S",
        help="the share of a tensor's largest value that is tolerated besides (0)",
    )
    _add_inputs(parser)
    _add_web_dist(parser)
    add(
        "--output",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where locate.html goes (default: here)",
    )
    add("--json", action="store_true", help="print everything as JSON")
    add("--quiet", action="store_true", help="no progress, only the result and errors")
    return parser


def _oracles(arguments: list[str]) -> int:
    argparse.ArgumentParser(
        prog="onnxreduce oracles", description="List the ready-made oracles and their parameters."
    ).parse_args(arguments)
    from onnxreduce.oracle.loading import list_oracles

    for entry in list_oracles():
        print(entry)
    return 0


def _backends(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="onnxreduce backends",
        description="List the backends and whether they work here, or the options of one.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a backend, such as web")
    options = parser.parse_args(arguments)
    from onnxreduce.backends import backend_class, list_backends

    if options.name is not None:
        for key, option in backend_class(options.name).OPTIONS.items():
            print(f"{key:14} {option}")
        return 0
    for info in list_backends():
        what = ", ".join(part for part in (info.version, info.device) if part)
        print(f"{info.spec:18} {f'not usable: {info.reason}' if info.reason else what}")
        if info.fix:
            print(f"{'':18} to mend it: {info.fix}")
    return 0


VERBS = {"batch": _batch, "locate": _locate, "oracles": _oracles, "backends": _backends}
