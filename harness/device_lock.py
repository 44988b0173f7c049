"""One submission per device at a time, across processes; the lock dies with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import DeviceError


@contextlib.contextmanager
def hold(device: str, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold `device` for as long as the context lasts; calls `waiting` once if it has to wait.

    An flock: the kernel releases it when its holder ends, however it ends.
    """
    path = Path(tempfile.gettempdir()) / f"harness-{device.replace(':', '-')}.lock"
    try:
        descriptor = _open(path)
    except OSError as error:
        raise DeviceError(
            f"{path}: cannot be opened ({error.strerror}), so nothing keeps two runs apart: remove "
            "it or set TMPDIR"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open another user's lock as it is: creating it again is refused in a sticky folder."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644)
