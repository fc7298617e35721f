"""What a run was made with, as far as a reader of its artefacts needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreduce.oracle import source
from onnxreduce.oracle.function import FunctionSource
from onnxreduce.oracle.loading import OracleSource, list_oracles
from onnxreduce.oracle.settings import REQUIRED, UNKNOWN, signature_of


@dataclass(frozen=True)
class OracleUsed:
    """The oracle of a run.

    Attributes:
        name: as the user gave it.
        summary: its own line on what the bug is, if it has one.
        files: its file, then the modules beside it that it imports; none for a function.
        executable: it is a program, not a Python function.
        ready_made: it comes with onnxreduce or another package.
        parameters: of ``interesting``, given or by default.
        packages: that its files import.
        identity: the versions that its answers depend on.
    """

    name: str
    summary: str = ""
    files: tuple[Path, ...] = ()
    executable: bool = False
    ready_made: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    identity: str = ""


def oracle_used(oracle: OracleSource | FunctionSource, identity: str) -> OracleUsed:
    """Reads an oracle's source once more; it ran, so it is known to be sound."""
    if isinstance(oracle, FunctionSource):
        return OracleUsed(oracle.name)
    if oracle.command and oracle.path.suffix != ".py":
        told = source.comment_line(oracle.path)
        return OracleUsed(oracle.name, told, files=(oracle.path,), executable=True)
    tree = source.parse(oracle.path)
    files, packages = source.dependencies(oracle.path, tree)
    function = source.find_function(tree)
    defaults = signature_of(function).parameters if function else ()
    known = {p.name: p.default for p in defaults if p.default not in (REQUIRED, UNKNOWN)}
    return OracleUsed(
        oracle.name,
        source.docstring_line(function or tree) or source.docstring_line(tree),
        tuple(files),
        bool(oracle.command),
        oracle.module is not None or oracle.name in {info.name for info in list_oracles()},
        {**known, **oracle.settings},
        tuple(sorted(packages)),
        identity,
    )
