"""YAML read as a tree that remembers its lines: nothing repeated, aliased, guessed or converted.

Only task.py reads it.  Every complaint is a TaskError `path:line: what. remedy`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.errors import TaskError

#: A hand-written file of shapes is a few KiB; beyond this it is not one.
MAX_BYTES = 1 << 20

#: Levels of lists and mappings; a row's `inputs` are on the fourth.
MAX_DEPTH = 8

_INTEGER = re.compile(r"0|[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class Value:
    """One node of the file and how to name it in a complaint."""

    path: Path
    node: yaml.Node
    name: str

    def error(self, what: str, remedy: str) -> TaskError:
        """The complaint about this node, to be raised."""
        return TaskError(f"{self.path}:{_line(self.node.start_mark)}: {what}. {remedy}")

    def mapping(self, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Value]:
        """Keys to values; unknown, repeated and missing keys are errors."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"{self.name} is {_kind(self.node)}", "Write `key: value` pairs")
        names = tuple(known)
        found: dict[str, Value] = {}
        for key, node in self.node.value:
            here = Value(self.path, key, self.name)
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else _kind(key)
            if name in found:
                first = _line(found[name].node.start_mark)
                raise here.error(f"{name!r} is given twice, first in line {first}", "Keep one")
            if name not in names:
                raise here.error(f"unknown key {name!r} in {self.name}", suggest(name, names))
            found[name] = Value(self.path, node, name)
        for name in required:
            if name not in found:
                raise self.error(f"{self.name} has no {name!r}", f"Add `{name}: ...`")
        return found

    def items(self) -> list[Value]:
        """The entries of a list that must not be empty."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"{self.name} is {_kind(self.node)}", "Write a list")
        if not self.node.value:
            raise self.error(f"{self.name} is an empty list", "List at least one entry")
        return [Value(self.path, node, f"an entry of {self.name}") for node in self.node.value]

    def text(self) -> str:
        """A word fit for a name: letters, digits, `_`, `-`."""
        tag = self.node.tag.rpartition(":")[2]
        if not isinstance(self.node, yaml.ScalarNode) or tag != "str":
            raise self.error(f"{self.name} is {_kind(self.node)}", "Write a name")
        word = str(self.node.value)
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", word):
            remedy = "Use at most 64 letters, digits, `_` and `-`, a letter first"
            raise self.error(f"{self.name} {word[:80]!r} is not a name", remedy)
        return word

    def integer(self, *, low: int, high: int) -> int:
        """A plain decimal whole number from low to high."""
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != "tag:yaml.org,2002:int":
            raise self.error(f"{self.name} is {_kind(self.node)}", _integer_remedy(self.node))
        text = str(self.node.value)
        if not _INTEGER.fullmatch(text.lstrip("+-")) or len(text) > 20:
            remedy = "Write plain decimal digits"
            raise self.error(f"{self.name} is {text[:40]}, not a plain whole number", remedy)
        number = int(text)
        if not low <= number <= high:
            raise self.error(f"{self.name} is {number}", f"It must be from {low} to {high}")
        return number

    def number(self, *, positive: bool) -> float:
        """A finite number, not negative; above zero when `positive`."""
        tag = self.node.tag.rpartition(":")[2]
        if not isinstance(self.node, yaml.ScalarNode) or tag not in ("int", "float"):
            raise self.error(f"{self.name} is {_kind(self.node)}", _number_remedy(self.node))
        try:
            number = float(str(self.node.value).replace("_", ""))
        except ValueError:
            number = math.nan  # .inf, .nan and the base 60 of YAML 1.1
        if not math.isfinite(number) or number < 0 or (positive and number == 0):
            bound = "above zero" if positive else "zero or more"
            what = f"{self.name} is {str(self.node.value)[:40]}"
            raise self.error(what, f"Write a finite number, {bound}")
        return number


def read(path: Path) -> Value:
    """The root of one YAML document.  Aliases are refused, so that no file grows when read."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise TaskError(f"{path}:1: larger than {MAX_BYTES} bytes. List fewer shapes")
        text = raw.decode("utf-8")
        _refuse_bombs(path, text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise TaskError(f"{path}:1: cannot be read: {error.strerror}. Check the file") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TaskError(f"{path}:{line}: not UTF-8 text. Save it as UTF-8 YAML") from None
    except yaml.YAMLError as error:
        raise TaskError(_syntax(path, error)) from None
    if node is None:
        raise TaskError(f"{path}:1: the file is empty. Copy the shapes.yaml of another task")
    return Value(path, node, "the file")


def _refuse_bombs(path: Path, text: str) -> None:
    """Stop at the first alias or too deep a level; events come lazily, so a bomb stays unread."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = _line(event.start_mark)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise TaskError(f"{path}:{line}: nested too deeply. Write flat lists and mappings")
        if isinstance(event, yaml.AliasEvent):
            raise TaskError(f"{path}:{line}: `*{event.anchor}` is an alias. Write it out")


def _line(mark: Any) -> int:
    return 1 if mark is None else int(mark.line) + 1


def _syntax(path: Path, error: yaml.YAMLError) -> str:
    line = _line(getattr(error, "problem_mark", None))
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "bad syntax"
    return f"{path}:{line}: not YAML: {problem}. Correct the syntax at or above this line"


def _kind(node: yaml.Node) -> str:
    """What a node is, in words, for "x is ..."."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    tag = node.tag.rpartition(":")[2]
    words = {
        "null": "empty",
        "bool": "true or false",
        "str": "text",
        "int": "a whole number",
        "float": "a number",
    }
    value = str(node.value)[:40]
    return words.get(tag, f"of the type {tag}") + (f" ({value!r})" if value else "")


def suggest(name: str, known: tuple[str, ...]) -> str:
    """A remedy for a name that is not known."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}"


def _integer_remedy(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode) and _INTEGER.fullmatch(str(node.value)):
        return f"Write {node.value} without quotes"
    return "Write a whole number"


def _number_remedy(node: yaml.Node) -> str:
    """How to write what was meant: YAML takes 1e-3 and 1.0e3 for text."""
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    match = re.fullmatch(r"([0-9]+)(\.[0-9]*)?(?:[eE]([+-]?)([0-9]+))?", text)
    if match is None:
        return "Write a number"
    whole, fraction, sign, exponent = match.groups()
    if exponent is None:
        return f"Write {text} without quotes"
    return f"Write {whole}{fraction or '.0'}e{sign or '+'}{exponent}"
