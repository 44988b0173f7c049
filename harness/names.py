"""Names that people and files give themselves: short, and with nothing in them that is not seen.

A board tells entries apart by author and submission, so a name must not look like another one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import PurePath

MAX_NAME = 100
NOBODY = "anonymous"  # the author of a file that names none

#: Control characters, formats (zero-width ones, right-to-left overrides), line and paragraph
#: separators, lone surrogates and private characters, which every font draws otherwise.
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co"})
#: Letters, marks and signs that have no look either, as Unicode's default-ignorable ones.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def flaw(name: str) -> str | None:
    """What is wrong with a name, in words that follow it, or None."""
    if not name.strip():
        return "is empty"
    if len(name) > MAX_NAME:
        return f"has {len(name)} characters, and {MAX_NAME} are the most"
    if _visible(name) != name:
        return "holds what cannot be seen, and so may look like another"
    return None


def proper(name: str) -> str:
    """The name with what cannot be seen written out, no space around it, and cut; "" of nothing."""
    return _visible(name)[:MAX_NAME].rstrip()


def stem(key: str) -> str:
    """The submission that a file's name is of: `half` of `submissions/half.py`."""
    return PurePath(key).name.removesuffix(".py")


def ambiguous(key: str, found: Iterable[tuple[str, str, str]]) -> str:
    """What to say of a key that fits several runs, each an id, a submission and its author."""
    runs = ", ".join(f"{run} ({submission} by {author})" for run, submission, author in found)
    return f"{key!r} may be {runs}; name one by its id"


def _visible(name: str) -> str:
    return "".join(_escape(c) if _is_unseen(c) else c for c in name.strip())


def _is_unseen(character: str) -> bool:
    if character.isascii():
        return not character.isprintable()
    category = unicodedata.category(character)
    return category in _UNSEEN or category == "Zs" or bool(_BLANK.match(character))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
