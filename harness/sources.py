"""Read submissions from disk, once, as untrusted bytes: what is judged is what was read."""

from __future__ import annotations

import codecs
import contextlib
import difflib
import hashlib
import io
import os
import re
import stat
import tokenize
from collections.abc import Iterator
from pathlib import Path

from harness.errors import UsageError
from harness.model import Submission
from harness.names import MAX_NAME, NOBODY, proper

#: The incumbent's own limit is 1 MB; embedded sources and tables of honest ones stay below.
MAX_SOURCE_BYTES = 1 << 20
PLACEHOLDER = "your-name"  # as starting points and README have it
_MOST_BESIDE = 100  # of a folder made to fill the order that they go into
#: How much of a file is looked at for its author, and how long its lines may be: Python's tokenizer
#: takes minutes for a line of 20 kB that it cannot read.
_HEAD, _LONGEST = 1 << 16, 1 << 12
#: Decoders that take time with the square of the length.
_SLOW_ENCODINGS = frozenset(("punycode", "idna"))
_DIRECTIVE = re.compile(r"#!HARNESS\s+author\s+(\S.*)")
_ANY_DIRECTIVE = re.compile(r"#\s*!\s*harness\b", re.IGNORECASE)


def read_submission(path: Path, author: str | None) -> Submission:
    """Read one file.  Raises UsageError for what cannot be a submission, with the remedy."""
    return submission_of(path, _read(path), author)


def submission_of(path: Path, raw: bytes, author: str | None) -> Submission:
    """A submission from its content, as from a file at `path`; raises as read_submission does."""
    if len(raw) > MAX_SOURCE_BYTES:
        raise UsageError(f"{path}: is larger than {MAX_SOURCE_BYTES >> 20} MiB, the limit")
    if not raw.strip():
        raise UsageError(f"{path}: the file is empty; `harness new NAME` writes a starting point")
    if b"\0" in raw:
        raise UsageError(f"{path}: not Python source (it holds NUL bytes)")
    if path.suffix != ".py":
        raise UsageError(f"{path}: a submission is one Python file, NAME.py")
    if len(path.stem) > MAX_NAME:
        raise UsageError(f"{path}: its name is longer than {MAX_NAME} characters; rename it")
    text = _decode(path, raw)
    return Submission(
        # Written out where it would not be seen: no name on a board looks like another one.
        name=proper(path.stem) or "unnamed",
        path=str(path),
        sha256=hashlib.sha256(raw).hexdigest(),
        author=proper(author or _author(path, text) or "") or NOBODY,
        # Bytes survive the round trip through JSON, whatever their encoding.
        source=raw.decode("utf-8", "surrogateescape"),
    )


def beside(submission: Submission) -> tuple[str, ...]:
    """Modules of the submission's folder whose names are in its text: it may mean to import them.

    Its worker is told no more of that folder than these.
    """
    named = set(re.findall(r"\w+", submission.source))
    found: set[str] = set()
    with contextlib.suppress(OSError, ValueError):
        for entry in os.scandir(Path(submission.path).parent):
            name = entry.name.removesuffix(".py")
            if name in named and (name != entry.name or entry.is_dir()):
                found.add(name)
    return tuple(sorted(found)[:_MOST_BESIDE])


def require_source(submission: Submission) -> Submission:
    """The submission itself.  Raises UsageError when its run was imported without the source."""
    if not submission.source:
        raise UsageError(
            f"{submission.name}: its source was left out of the bundle it came in, so it cannot be "
            "judged again; run its file here"
        )
    return submission


def _read(path: Path) -> bytes:
    try:
        # Not blocking on a FIFO; not following what changes between a check and the read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file{_guess(path)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path}: cannot be read ({reason})") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        # Before Python wraps it: a folder has no file object.
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise UsageError(f"{path}: is a folder; name the files, for example {path}/*.py")
        raise UsageError(f"{path}: is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        # One byte more than is allowed: submission_of refuses it without reading the rest.
        return file.read(MAX_SOURCE_BYTES + 1)


def _guess(path: Path) -> str:
    """Which file may have been meant: without its suffix, misspelt, or without its folder."""
    folders = [path.parent] + ([Path("submissions")] if path.parent == Path() else [])
    wanted = path.name if path.suffix == ".py" else f"{path.name}.py"
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(".py")]
            for near in difflib.get_close_matches(wanted, names, n=1, cutoff=0.75):
                return f"; did you mean {folder / near}?"
    return ""


def _decode(path: Path, raw: bytes) -> str:
    """Decode as Python itself would: byte-order mark, coding cookie, else UTF-8."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        if codecs.lookup(encoding).name in _SLOW_ENCODINGS:
            raise LookupError(f"{encoding} is no encoding for text")
        return raw.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise UsageError(f"{path}: not Python source ({error}); save it as UTF-8") from None


def _author(path: Path, text: str) -> str | None:
    """Who the first `#!HARNESS author NAME` names, at the top or below a docstring or imports.

    Raises UsageError for a line at the top that means to be one: who misspells it would run as
    anonymous.  Further down such a line may be anything, part of a text for instance; below 64 KiB,
    or a line of more than 4 KiB, there is none.
    """
    head = text.lstrip("\ufeff")[:_HEAD]
    if _ANY_DIRECTIVE.search(head) is None:
        return None
    top = 1
    for number, comment in _comments(head):
        found = _DIRECTIVE.match(comment.rstrip())
        if found:
            return None if found.group(1) == PLACEHOLDER else found.group(1)
        if number == top and _ANY_DIRECTIVE.match(comment):
            raise UsageError(
                f"{path}:{number}: {comment.strip()[:60]!r} is no `#!HARNESS author NAME`; "
                "write it so"
            )
        top += number == top
    return None


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Line number and text of the comments that begin a line, until Python cannot read on.

    A line of a string is none: a kernel may quote another one, author and all.
    """
    lines = io.StringIO(text, newline=None)

    def read() -> str:
        line = lines.readline()
        return line if len(line) <= _LONGEST else ""

    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(read):
            if token.type == tokenize.ERRORTOKEN:
                return
            if token.type == tokenize.COMMENT and token.start[1] == 0:
                yield token.start[0], token.string
