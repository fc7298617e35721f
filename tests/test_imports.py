"""Which way imports point: a newcomer can read the engine, a pass or an oracle alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "onnxreduce"
FORBIDDEN = {
    "passes": {"oracle", "backends", "reducer", "cli", "emit", "engine", "progress", "journal"},
    "dims": {"oracle", "backends", "reducer", "cli", "emit", "engine", "passes"},
    "backends": {"oracle", "passes", "dims", "reducer", "cli", "engine", "emit"},
    "oracle": {"passes", "dims", "backends", "reducer", "cli", "engine", "emit"},
    "emit": {"oracle", "passes", "dims", "reducer", "cli", "engine"},
    "engine.py": {"oracle", "backends", "passes", "dims", "reducer", "cli", "emit"},
    "graph.py": {"passes", "oracle", "backends", "dims", "reducer", "surgery"},
    "case.py": {"passes", "oracle", "backends", "dims", "edits", "graph", "surgery"},
    "edits.py": {"passes", "oracle", "backends", "dims", "search", "graph"},
}
SEARCH_MAY = {"verdict"}


def imported(path: Path) -> set[str]:
    """The first name below the package of everything that a module imports from it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "onnxreduce":
                names |= {parts[1]} if parts[1:] else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {
                alias.name.split(".")[1]
                for alias in node.names
                if alias.name.startswith("onnxreduce.")
            }
    return names


@pytest.mark.parametrize("part", FORBIDDEN)
def test_parts_do_not_reach_up(part: str) -> None:
    target = PACKAGE / part
    files = sorted(target.rglob("*.py")) if target.is_dir() else [target]
    assert files
    for path in files:
        assert not imported(path) & FORBIDDEN[part], path


def test_search_is_pure() -> None:
    assert imported(PACKAGE / "search.py") <= SEARCH_MAY
    tree = ast.parse((PACKAGE / "search.py").read_text())
    modules = {
        name.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert not modules & {"onnx", "onnx_ir", "onnxruntime"}


def test_only_the_command_line_imports_the_command_line() -> None:
    users = [path.name for path in PACKAGE.rglob("*.py") if "cli" in imported(path)]
    assert users == ["__main__.py"]
