"""One submission per device at a time, across processes; the lock dies with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import DeviceError

_PAUSE_S = 0.2  # nothing beside the seconds that a run takes
_TRIES_PER_WORD = 100


@contextlib.contextmanager
def hold(device: str, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold `device`, "cpu" or a GPU's UUID, for as long as the context lasts.

    Calls `waiting` now and then until it has it: a judge that waits must not look like one that
    hangs (pool.SILENCE_NS).  It is an flock: the kernel releases it when its holder ends, however.
    """
    # A GPU is one for all users and every TMPDIR; whoever gives a CPU run a TMPDIR of its own (a
    # test, a container) says that the cores are its own as well.
    folder = Path(tempfile.gettempdir() if device == "cpu" else "/tmp")
    path = folder / f"harness-{device.replace(':', '-')}.lock"
    try:
        descriptor = _open(path)
    except OSError as error:
        raise DeviceError(
            f"{path}: cannot be opened ({error.strerror}), so nothing keeps two runs apart: remove "
            "it, or make its folder writable"
        ) from None
    try:
        tries = 0
        while not _taken(descriptor):
            if tries % _TRIES_PER_WORD == 0:
                waiting()
            tries += 1
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: Path) -> int:
    """Open another user's lock as it is: creating it again is refused in a sticky folder."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):  # another user was first
            return _made(path, flags)


def _made(path: Path, flags: int) -> int:
    """Make a lock that others can open from its first moment on."""
    mask = os.umask(0o022)  # root's of 077 would keep every other user from waiting
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    finally:
        os.umask(mask)
