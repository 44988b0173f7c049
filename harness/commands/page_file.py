"""`harness leaderboard --html FILE`: read what the page shows, write it whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from harness import whole_file
from harness.errors import StoreError, UsageError
from harness.model import Board, Mode, Run
from harness.store import MissingStore, Store, open_store

#: Runs that the progression is drawn from; reading 100,000 took half of the page's time.
HISTORY = 30_000


def write(
    file: Path, url: str, boards: Sequence[Board], *, everything: bool, with_source: bool
) -> str:
    """Write the page and return a sentence about it.

    Raises UsageError when an extra is missing or the file cannot be written.
    """
    from harness.render.page import page

    try:
        with open_store(url, create=False) as store:
            runs = _runs(store, boards)
            history = store.runs(mode=Mode.RANKED, limit=HISTORY)
    except MissingStore:
        runs, history = {}, ()
    document = page(
        boards,
        runs,
        history,
        now_ns=time.time_ns(),
        with_source=with_source,
        everything=everything,
        older=len(history) == HISTORY,
    )
    size = replace_file(file, document.encode("utf-8", "backslashreplace"))
    return f"wrote {file} ({megabytes(size)})"


def _runs(store: Store, boards: Sequence[Board]) -> dict[str, Run]:
    """The run of every standing but those whose details are damaged; the page says so."""
    found: dict[str, Run] = {}
    for board in boards:
        for standing in board.standings:
            try:
                found[standing.run] = store.get(standing.run)
            except StoreError:
                continue
    return found


def megabytes(size: int) -> str:
    """A file's size in words."""
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"


def replace_file(file: Path, data: bytes) -> int:
    """`whole_file.put`, and the size.  Raises UsageError when it cannot be written."""
    try:
        whole_file.put(file, data)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written ({error.strerror})") from None
    return len(data)
