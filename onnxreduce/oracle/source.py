"""Looking into an oracle's source without running it."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

from onnxreduce.errors import UsageError

FUNCTION = "interesting"

Definition = ast.FunctionDef | ast.AsyncFunctionDef
_HARMLESS = ("sys.path.", "warnings.", "logging.")


def parse(path: Path) -> ast.Module:
    """The syntax tree of a Python file.

    Raises:
        UsageError: it cannot be read, or is not Python.
    """
    try:
        return ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"oracle {path}: cannot read it: {error.strerror}") from None
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise UsageError(f"oracle {path}{where}: not valid Python: {error.msg}") from None
    except ValueError as error:  # null bytes
        raise UsageError(f"oracle {path}: not valid Python: {error}") from None


def find_function(tree: ast.Module, name: str = FUNCTION) -> Definition | None:
    """The last top-level definition of a function, also inside `if` and `try`."""
    found = None
    for statement in _top_level(tree.body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
            found = statement
    return found


def functions(tree: ast.Module) -> list[str]:
    return [s.name for s in _top_level(tree.body) if isinstance(s, Definition)]


def binds(tree: ast.Module, name: str) -> bool:
    """Does the module import or assign `name` at top level?"""
    for statement in _top_level(tree.body):
        match statement:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                if any((alias.asname or alias.name) == name for alias in names):
                    return True
            case ast.Assign(targets=targets):
                if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                    return True
    return False


def whole_number(tree: ast.Module, name: str) -> int | None:
    """What a positive constant of the module is, if it is written as a number."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Constant(value=int(number))):
                if target == name and number > 0:
                    return number
    return None


def does_something(tree: ast.Module) -> bool:
    """Could running the file as a script tell one model from another?

    A file of imports, definitions and constants exits with status 0 whatever it is given.
    """
    defined = set(functions(tree))
    return any(_acts(statement, defined) for statement in _top_level(tree.body))


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, and those inside its `if`, `try` and `with` blocks."""
    for statement in body:
        yield statement
        match statement:
            case ast.If(body=inner, orelse=other):
                yield from _top_level(inner + other)
            case ast.Try(body=inner, handlers=handlers, orelse=other, finalbody=final):
                caught = [s for handler in handlers for s in handler.body]
                yield from _top_level(inner + caught + other + final)
            case ast.With(body=inner):
                yield from _top_level(inner)


def _acts(statement: ast.stmt, defined: set[str]) -> bool:
    match statement:
        case (
            ast.Import()
            | ast.ImportFrom()
            | ast.FunctionDef()
            | ast.AsyncFunctionDef()
            | ast.ClassDef()
            | ast.Pass()
            | ast.If()
            | ast.Try()
            | ast.With()
        ):
            return False  # of compound statements the inner ones count
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.Expr(value=ast.Call(func=function)):
            return not ast.unparse(function).startswith(_HARMLESS)
        case ast.Assign(value=value) | ast.AnnAssign(value=value) if value is not None:
            called = {ast.unparse(n.func) for n in ast.walk(value) if isinstance(n, ast.Call)}
            return bool(called & defined)
        case ast.AnnAssign():
            return False
        case _:
            return True


def docstring_line(node: Definition | ast.Module) -> str:
    """The first line of the docstring, or nothing."""
    return (ast.get_docstring(node) or "").split("\n")[0]


def comment_line(path: Path) -> str:
    """The first words of the comment at the top of a script, or of its docstring, or nothing."""
    with path.open("rb") as file:
        head = file.read(4096).decode("utf-8", "replace")
    for text in head.splitlines():
        words = text.strip().lstrip("#\"' ").rstrip("\"' ")
        if text.startswith("#!") or not words:
            continue
        told = text.lstrip().startswith(("#", '"""', "'''")) and words.isprintable()
        return words if told else ""
    return ""


def fingerprint(path: Path, tree: ast.Module | None) -> str:
    """SHA-256 (hex) of a file, of the modules it imports from its own folder, and of the versions
    of the packages and of the Python that it uses."""
    hasher = hashlib.sha256()
    files, packages = dependencies(path, tree)
    for file in files:
        hasher.update(hashlib.sha256(file.read_bytes()).digest())
    for package in sorted(packages - sys.stdlib_module_names):
        hasher.update(f"{package} {_version(package)}\n".encode())
    if tree:
        hasher.update(sys.version.encode())
    return hasher.hexdigest()


def dependencies(path: Path, tree: ast.Module | None) -> tuple[list[Path], set[str]]:
    """A file with the modules that it imports from its own folder, and the packages that these
    import from elsewhere."""
    pending, seen, packages = [path.resolve()], dict[Path, None](), set[str]()
    while pending:
        file = pending.pop()
        if file in seen:
            continue
        seen[file] = None
        if file == path.resolve():
            imports = _imported(tree) if tree else []
        else:
            imports = _imported_by(file.read_bytes())
        for name in imports:
            local = _local(path.resolve().parent, name)
            pending.extend(local)
            if not local:
                packages.add(name.partition(".")[0])
    return list(seen), packages


def _imported_by(content: bytes) -> list[str]:
    try:
        return _imported(ast.parse(content))
    except (SyntaxError, ValueError):
        return []  # the oracle will say so when it imports this one


def _imported(tree: ast.Module) -> list[str]:
    """Dotted names of the modules that are imported anywhere in the file, in order."""
    names = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names += [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                names += [module, *(f"{module}.{alias.name}" for alias in aliases)]
    return names


def _local(folder: Path, name: str) -> list[Path]:
    """The file of a module, with the `__init__` files above it, if it lives in `folder`."""
    files = []
    place = folder
    for part in name.split("."):
        place = place / part
        for file in (place.with_name(part + ".py"), place / "__init__.py"):
            if file.is_file():
                files.append(file.resolve())
                break
        else:
            if not place.is_dir():
                break
    return files


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
