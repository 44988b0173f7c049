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

    An earlier worker of the same submission may have put a link in the place of any of them, and,
    without a sandbox, of the scratch folder itself: none is followed or given away.  Raises
    OSError when `scratch` is not a folder.
    """
    folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if uid is not None:
            os.fchown(folder, uid, uid)
        os.fchmod(folder, 0o700)
        for name in ("home", "tmp", "cache"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
                if uid is not None:
                    os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(folder)


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
