"""A worker's own folder: made for its user, and measured while it is in use.

Used by sandbox.py.  Whatever is in it was put there by a worker: nothing is followed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MAX_FILES = 200_000  # a torch extension's build makes about a hundred


def prepare(scratch: Path, uid: int | None) -> None:
    """Make the folders that a worker's variables name, its own; existing ones stay as they are.

    An earlier worker of the same submission may have put a link in their place: nothing below
    the scratch folder itself is ever followed or given away.
    """
    if uid is not None:
        os.chown(scratch, uid, uid)
    os.chmod(scratch, 0o700)
    for name in ("home", "tmp", "cache"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(scratch / name, 0o700)
            if uid is not None:
                os.chown(scratch / name, uid, uid, follow_symlinks=False)


def usage(folder: Path) -> tuple[int, int]:
    """Bytes on disk and number of files; stops counting above the largest number allowed."""
    total = files = 0
    waiting: list[str] = [str(folder)]
    while waiting and files <= MAX_FILES:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                files += 1
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total, files
