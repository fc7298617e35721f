"""How a backend is named: ``name[@version][:key[=value],...]``.

Examples: ``ort``, ``ort:opt=disable_all,threads=1``, ``ort@1.17.0``, ``web@1.23.2:webgpu``,
``plugin:mine.py``. A bare key means ``key=true``. Values hold no comma; lists use ``+``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from onnxreduce.errors import UsageError

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True)
class Option:
    """One option of a backend: what it does, its default and, where they are few, its values."""

    help: str
    default: str = ""
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.choices == FLAG:
            return self.help
        choices = f"; one of {', '.join(self.choices)}" if self.choices else ""
        return f"{self.help}{choices}{f' [{self.default}]' if self.default else ''}"


FLAG = ("true", "false")
"""Choices of a yes/no option; ``1``, ``on`` and so on are taken too."""


@dataclass(frozen=True)
class Spec:
    """A backend by name, version and options, in the order in which they were written."""

    name: str
    version: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def __reduce__(self) -> tuple[object, ...]:
        return Spec, (self.name, self.version, dict(self.options))

    def __str__(self) -> str:
        version = f"@{self.version}" if self.version else ""
        words = [
            key if value == "true" else f"{key}={value}" for key, value in self.options.items()
        ]
        return f"{self.name}{version}{':' if words else ''}{','.join(words)}"

    def without(self, *keys: str) -> Spec:
        """The same spec with some options left out."""
        kept = {key: value for key, value in self.options.items() if key not in keys}
        return Spec(self.name, self.version, kept)

    def check(self, known: Mapping[str, Option]) -> None:
        """Refuse what `known` does not list; an entry ``a.*`` there stands for all that begin so.

        Raises:
            UsageError: an option or a value that is not there; says which there are.
        """
        for key, value in self.options.items():
            option = known.get(key) or known.get(f"{key.partition('.')[0]}.*" if "." in key else "")
            if option is None:
                near = difflib.get_close_matches(key, known, 1)
                hint = f" (did you mean '{near[0]}'?)" if near else ""
                listed = ", ".join(known) or "none"
                raise UsageError(
                    f"backend '{self}': no option '{key}'{hint}; options of {self.name}: {listed}"
                )
            choices = option.choices
            if choices == FLAG:
                flag(value, f"backend '{self}': {key}")
            elif choices and value not in choices:
                raise UsageError(
                    f"backend '{self}': {key} is one of {', '.join(choices)}, not '{value}'"
                )


def flag(text: str, where: str) -> bool:
    """A yes/no option as a bool.

    Raises:
        UsageError: `text` is neither; `where` says whose it is.
    """
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise UsageError(f"{where} is true or false, not '{text}'")


def parse_spec(text: str) -> Spec:
    """Read ``name[@version][:key[=value],...]``; whether the name exists is not asked here.

    Raises:
        UsageError: not of that form.
    """
    head, colon, tail = text.partition(":")
    match = re.fullmatch(r"([A-Za-z][\w.-]*)(?:@([\w.+-]+))?", head.strip())
    if match is None or (colon and not tail):
        raise UsageError(
            f"backend '{text}': write name[@version][:key[=value],...], "
            "such as ort, ort@1.23.2 or ort:opt=disable_all,threads=1"
        )
    options: dict[str, str] = {}
    for word in tail.split(",") if tail else []:
        key, equals, value = word.partition("=")
        key = key.strip()
        if not key or key in options:
            raise UsageError(
                f"backend '{text}': option '{word}' is {'given twice' if key else 'empty'}"
            )
        options[key] = value.strip() if equals else "true"
    return Spec(match[1], match[2], options)
