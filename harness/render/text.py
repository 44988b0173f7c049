"""Words, numbers and signs for people: untrusted text made safe, units, signs by encoding."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

#: Unicode categories that change how the rest of a line looks, or have no look: control characters
#: (ESC), formats (right-to-left overrides, zero-width), lone surrogates, unassigned, separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})

_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
_PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))


@dataclass(frozen=True, slots=True)
class Marks:
    """The signs that an output can show, and the encoding that limits it."""

    encoding: str
    micro: str
    plus_minus: str
    times: str
    to: str
    dot: str
    none: str
    bars: str


_RICH = Marks("utf-8", "\u00b5", "\u00b1", "\u00d7", "\u2013", "\u00b7", "\u2013", " ▁▂▃▄▅▆▇█")
_LATIN = Marks("cp1252", "\u00b5", "\u00b1", "\u00d7", "-", "\u00b7", "-", " .:-=+*#@")
_ASCII = Marks("ascii", "u", "+-", "x", "-", "|", "-", " .:-=+*#@")


def marks(encoding: str | None) -> Marks:
    """The signs for an output of this encoding; an unknown one is taken for ASCII."""
    for known in (_RICH, _LATIN):
        signs = known.micro + known.plus_minus + known.times + known.to + known.dot + known.bars
        try:
            signs.encode(encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            continue
        return Marks(encoding or "ascii", *(getattr(known, n) for n in Marks.__slots__[1:]))
    return _ASCII


def plain(text: str, encoding: str = "utf-8") -> str:
    """Untrusted text as one line that any terminal shows as it is: what is unsafe as an escape."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(_escape(c) if unicodedata.category(c) in _UNSAFE else c for c in text)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def lines(text: str, encoding: str = "utf-8") -> tuple[str, ...]:
    """`plain` for a text of several lines, as a log: tabs are widened, line ends kept."""
    return tuple(plain(line.expandtabs(), encoding) for line in text.split("\n"))


def _escape(character: str) -> str:
    code = ord(character)
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}.get(character)
    if known:
        return known
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def duration(ns: float | None, signs: Marks = _RICH, *, digits: int = 4) -> str:
    """A time of `digits` significant figures in the unit that suits it: `98.31 us`."""
    if ns is None or not math.isfinite(ns):
        return signs.none
    rounded = float(f"{ns:.{digits - 1}e}")
    unit, scale = next(((u, s) for u, s in _UNITS if abs(rounded) >= s), _UNITS[-1])
    value = rounded / scale
    decimals = digits - 1 - (math.floor(math.log10(abs(value))) if value else 0)
    return f"{value:.{max(0, decimals)}f} {unit.replace('u', signs.micro)}"


def amount(value: float, unit: str) -> str:
    """A number of bytes, or of bytes a second, of three figures: `18.9 kB`, `4.72 TB/s`."""
    rounded = float(f"{value:.2e}")
    prefix, scale = next(((p, s) for p, s in _PREFIXES if rounded >= s), _PREFIXES[-1])
    value = rounded / scale
    decimals = 0 if scale == 1 or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f} {prefix}{unit}"


def durations(times: Sequence[float | None], signs: Marks = _RICH) -> tuple[str, ...]:
    """Times of one column: four figures, more where different times would look the same."""
    known = [t for t in times if is_number(t)]
    different = len({duration(t, signs, digits=8) for t in known})
    digits = 4
    while len({duration(t, signs, digits=digits) for t in known}) < different:
        digits += 1
    return tuple(duration(t, signs, digits=digits) for t in times)


def percent(share: float | None, signs: Marks = _RICH) -> str:
    """A share of one as a percentage of two or three figures."""
    if share is None or not math.isfinite(share):
        return signs.none
    value = share * 100
    return f"{value:.0f}%" if value >= 99.95 else f"{value:.1f}%" if value >= 0.1 else "<0.1%"


def spread(low: float, middle: float, high: float, signs: Marks = _RICH) -> str:
    """An interval as the percentage either way: `+-0.21%`."""
    if not all(math.isfinite(v) and v > 0 for v in (low, middle, high)):
        return signs.none
    value = math.log(high / low) / 2 * 100
    if value >= 99.5:
        return f"over {signs.plus_minus}100%"
    return f"{signs.plus_minus}{value:.2f}%" if value < 9.995 else f"{signs.plus_minus}{value:.0f}%"


def factor(ratio: float | None, signs: Marks = _RICH) -> str:
    """A speedup of three figures: `4.92x`."""
    if ratio is None or not math.isfinite(ratio):
        return signs.none
    decimals = 2 if ratio < 9.995 else 1 if ratio < 99.95 else 0
    return f"{ratio:.{decimals}f}{signs.times}"


def age(created_ns: int, now_ns: int) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0, now_ns - created_ns) // 1_000_000_000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def rfc3339(ns: int) -> str | None:
    """A Unix time as RFC 3339 in UTC with milliseconds; None outside the years 1 to 9999."""
    try:
        moment = datetime.fromtimestamp(ns // 1_000_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns // 1_000_000 % 1000:03d}Z"


def listing(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; beyond five the rest is counted."""
    shown = [*names[:4], f"{len(names) - 4} more"] if len(names) > 5 else [*names]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def histogram(
    times: Sequence[float], signs: Marks = _RICH, *, width: int = 32
) -> tuple[str, str, str] | None:
    """The middle 98% of some times as bars between two labels; None below three times."""
    ordered = sorted(t for t in times if math.isfinite(t))
    if len(ordered) < 3:
        return None
    cut = len(ordered) // 100
    inner = ordered[cut : len(ordered) - cut]
    low, span = inner[0], inner[-1] - inner[0]
    counts = [0] * width
    for t in inner:
        counts[min(width - 1, int((t - low) / span * width)) if span else width // 2] += 1
    most = max(counts)
    # Rounded up, so that a single sample still shows beside a bin that holds thousands.
    bars = "".join(signs.bars[-(-count * (len(signs.bars) - 1) // most)] for count in counts)
    return duration(inner[0], signs), bars, duration(inner[-1], signs)
