"""Parameters of Python oracles, read from the source of `interesting` without running it."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxreduce.errors import UsageError

REQUIRED = object()
"""The default of a parameter that has none."""
UNKNOWN = object()
"""The default of a parameter that is given by an expression."""

_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of `interesting`.

    Attributes:
        name: as given to ``--set``.
        types: names of the types it takes, among ``int float bool str None``; empty: any.
        default: its value, `REQUIRED` or `UNKNOWN`.
        text: the default as it is written, empty if there is none.
    """

    name: str
    types: tuple[str, ...]
    default: object
    text: str

    def __str__(self) -> str:
        return f"{self.name}={self.text}" if self.default is not REQUIRED else self.name

    def convert(self, text: str) -> Any:
        """The value that `text` stands for.

        Raises:
            ValueError: it fits none of the types.
        """
        for kind in sorted(self.types, key=("None", "bool", "int", "float", "str").index):
            try:
                return _read(kind, text)
            except ValueError:
                continue
        if self.types:
            raise ValueError(" or ".join(self.types))
        return _guess(text)


@dataclass(frozen=True)
class Signature:
    """What can be set. `anything`: the function takes ``**`` as well."""

    parameters: tuple[Parameter, ...]
    anything: bool

    def convert(self, settings: Mapping[str, str], oracle: str) -> dict[str, Any]:
        """Keyword arguments from ``--set``.

        Raises:
            UsageError: an unknown name, a value of the wrong type, or a required one missing.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        values = {}
        for name, text in settings.items():
            if name not in known and not self.anything:
                raise UsageError(f"--set {name}={text}: {self._unknown(name, oracle)}")
            try:
                values[name] = known[name].convert(text) if name in known else _guess(text)
            except ValueError as error:
                raise UsageError(f"--set {name}={text}: {name} must be {error}") from None
        missing = [
            p.name for p in self.parameters if p.default is REQUIRED and p.name not in values
        ]
        if missing:
            needs = " ".join(f"--set {name}=VALUE" for name in missing)
            raise UsageError(f"the oracle {oracle} needs {needs}")
        return values

    def _unknown(self, name: str, oracle: str) -> str:
        if not self.parameters:
            return f"the oracle {oracle} has no parameters"
        names = [parameter.name for parameter in self.parameters]
        near = difflib.get_close_matches(name, names, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"the oracle {oracle} has no such parameter; it has {', '.join(names)}{hint}"


def signature_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    """The parameters of `interesting`, all but the first, which is the case."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    absent = [None] * (len(positional) - len(arguments.defaults))
    pairs = list(zip(positional, [*absent, *arguments.defaults], strict=True))[1:]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return Signature(
        tuple(_parameter(argument, default) for argument, default in pairs),
        arguments.kwarg is not None,
    )


def _parameter(argument: ast.arg, default: ast.expr | None) -> Parameter:
    value: object = REQUIRED
    if default is not None:
        try:
            value = ast.literal_eval(default)
        except ValueError:
            value = UNKNOWN
    types = _types(argument.annotation)
    if not types and type(value) in (int, float, bool, str):
        types = (type(value).__name__,)
    if types and value is None and "None" not in types:
        types = (*types, "None")
    # An int default without an annotation is no promise that the parameter takes no fractions.
    if argument.annotation is None and types == ("int",):
        types = ("int", "float")
    text = "" if default is None else ast.unparse(default)
    return Parameter(argument.arg, types, value, text)


def _types(annotation: ast.expr | None) -> tuple[str, ...]:
    """Names of simple types in ``int``, ``int | None``, ``Optional[int]`` or a quoted one."""
    match annotation:
        case ast.Name(id="int" | "float" | "bool" | "str" as name):
            return (name,)
        case ast.Constant(value=None):
            return ("None",)
        case ast.Constant(value=str(text)):
            try:
                return _types(ast.parse(text, mode="eval").body)
            except SyntaxError:
                return ()
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            sides = (_types(left), _types(right))
            return sides[0] + sides[1] if all(sides) else ()
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return (*_types(inner), "None") if _types(inner) else ()
        case _:
            return ()


def _read(kind: str, text: str) -> Any:
    if kind == "None":
        if text.lower() == "none":
            return None
        raise ValueError
    if kind == "bool":
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        raise ValueError
    return {"int": int, "float": float, "str": str}[kind](text)


def _guess(text: str) -> Any:
    """A Python literal, else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
