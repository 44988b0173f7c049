"""A worker's own folder: made for its user, measured while it is in use, and removed.

Whatever is in it was put there by a worker: no link is followed, and no depth, name or mode is
beyond it (tests/exploits/zoo/k4_unremovable.py, k4_links_for_the_judge.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

_FOLDERS = ("home", "tmp", "cache")  # what a worker's variables name
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
        for name in _FOLDERS:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
                if uid is not None:
                    os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(folder)


def relieve(scratch: Path, limit_bytes: int) -> None:
    """Empty the folder where a worker left more than a fresh one may have; else change nothing.

    The fresh one would be over its limits before it did anything, and that would look like a fault
    of ours (tests/exploits/zoo/k5_fill_the_disk.py).  Raises OSError.
    """
    used, files = usage(scratch)
    if used <= limit_bytes and files <= MAX_FILES:
        return
    for path in list(scratch.iterdir()):
        remove(path)
    for name in _FOLDERS:
        (scratch / name).mkdir()
        (scratch / name).chmod(0o777)  # the folder around it is the worker's alone


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; what is not there is no error.

    shutil.rmtree follows the depth of a tree with its own stack and descriptors, and gives up on
    folders without permissions: both are a worker's choice.  Call it when no worker lives there.
    Raises OSError when something cannot be removed.
    """
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
    except FileNotFoundError:
        return
    path.chmod(0o700)
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lifted = 0
        while names := os.listdir(top):
            for name in names:
                lifted = _remove_entry(top, name, lifted)
    finally:
        os.close(top)
    path.rmdir()


def _remove_entry(top: int, name: str, lifted: int) -> int:
    """Remove one entry of `top`; folders inside it are first lifted into `top` itself.

    So no tree is ever more than two deep.  Returns how many were lifted so far.
    """
    try:
        os.unlink(name, dir_fd=top)
        return lifted
    except IsADirectoryError:
        os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for inner in os.listdir(folder):
            try:
                os.unlink(inner, dir_fd=folder)
            except IsADirectoryError:
                os.chmod(inner, 0o700, dir_fd=folder)  # its `..` changes, which is a write
                lifted += 1
                aside = f"{lifted}-{os.urandom(8).hex()}"
                os.rename(inner, aside, src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)
    return lifted


def usage(folder: Path) -> tuple[int, int]:
    """Bytes on disk and number of files; stops counting above the largest number allowed.

    A tree too deep to be named counts as too many files: what lies there cannot be counted.
    """
    total = files = 0
    waiting: list[str] = [str(folder)]
    while waiting and files <= MAX_FILES:
        try:
            entries = os.scandir(waiting.pop())
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return total, MAX_FILES + 1
            continue
        with contextlib.suppress(OSError), entries:
            for entry in entries:
                files += 1
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total, files
