"""Files that are written whole or not at all, and never over what is somebody's work."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from harness.errors import UsageError

#: How far into a file one looks for what it is; a bundle and a page say it in their first lines.
_HEAD_BYTES = 4096

#: A bundle, as `bundle.dumps` writes it and as other spacing leaves it.
BUNDLE = re.compile(rb'\s*\{.*"format"\s*:\s*"kernel-harness bundle"', re.DOTALL)
#: A page of `harness leaderboard --html`; the second form is that of version 0.2.
PAGE = re.compile(
    rb"\s*<!doctype html>.*"
    rb'(<meta name="generator" content="kernel-harness">'
    rb'|<meta name="referrer" content="no-referrer">\s*<title>[^<]*[Ll]eaderboard</title>)',
    re.DOTALL,
)


def refuse_foreign(
    file: Path, ours: Iterable[re.Pattern[bytes]], *, option: str = "", remedy: str
) -> None:
    """Raise UsageError where writing to `file` would destroy what is none of `ours`.

    Nothing, an empty file, a pipe and a device are written to; so is a file whose beginning one of
    `ours` matches.  `option` is what stood before the name on the command line.
    """
    try:
        if not file.is_file():
            return
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise UsageError(f"{option}{file}: cannot be read ({error.strerror})") from None
    if head.strip() and not any(mark.match(head) for mark in ours):
        raise UsageError(f"{option}{file}: is there already and would be overwritten; {remedy}")


def put(file: Path, data: bytes) -> None:
    """Write a file; its reader sees the old one or the new one, never a half.  Raises OSError.

    A link is followed, another name of the same file is not; a pipe or a device is written to, as
    it is.
    """
    if file.exists() and not file.is_file():
        with file.open("wb") as stream:
            stream.write(data)
        return
    end = Path(os.path.realpath(file))
    # A pull request may have committed a link under any name that it can guess, as one for every
    # process number: the name is drawn, and what is there already is never opened.
    half = end.with_name(f".{secrets.token_hex(8)}.new")
    with half.open("xb") as stream:
        try:
            stream.write(data)
            stream.flush()
            half.replace(end)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
