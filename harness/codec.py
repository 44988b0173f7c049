"""Values of model.py to and from plain JSON data, driven by their annotations alone.

Used between our own processes, by the store and by result bundles.  Never on a worker's bytes:
those go through wire.py.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

_NOT_FINITE = ("nan", "inf", "-inf")


#: No count, time or size of ours needs more; databases and C hold no more.
_TOO_LARGE = 1 << 63


def encode(value: Any) -> Any:
    """Turn a dataclass tree into plain data; every object carries its class name under `$`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"$": type(value).__name__, **fields}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers, and an element that is NaN is worth keeping
    return value


def decode(kind: type[T], data: Any) -> T:
    """Rebuild a `kind`.  Unknown fields are ignored, so an older reader survives a newer writer.

    Raises ValueError when a field is missing or of another type.
    """
    return typing.cast(T, _decode(kind, data, kind.__name__))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(kind), data, where)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), data, where)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_dataclass(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if type(data) is int and abs(data) >= _TOO_LARGE:
        raise ValueError(f"{where}: a number of absurd size")
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if kind is float and data in _NOT_FINITE:
        return float(data)
    if type(data) is not kind:
        raise ValueError(f"{where}: expected {kind.__name__}, got {type(data).__name__}")
    return data


def _decode_union(members: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in members:
        return None
    named = [m for m in members if isinstance(data, dict) and m.__name__ == data.get("$")]
    others = named or [m for m in members if m is not type(None)]
    if len(others) != 1:
        raise ValueError(f"{where}: no member of the union fits")
    return _decode(others[0], data, where)


def _decode_tuple(members: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, list):
        raise ValueError(f"{where}: expected a list, got {type(data).__name__}")
    if len(members) == 2 and members[1] is Ellipsis:
        return tuple(_decode(members[0], item, where) for item in data)
    if len(members) != len(data):
        raise ValueError(f"{where}: expected {len(members)} items, got {len(data)}")
    return tuple(_decode(m, item, where) for m, item in zip(members, data, strict=True))


def _decode_dataclass(kind: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where}: expected an object, got {type(data).__name__}")
    hints = _hints(kind)
    known = {f.name for f in dataclasses.fields(kind)}
    found = {n: _decode(hints[n], v, f"{where}.{n}") for n, v in data.items() if n in known}
    try:
        return kind(**found)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
