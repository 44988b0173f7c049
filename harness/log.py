"""What a worker printed: the first and the last part of it, bounded whatever it does.

Used by sandbox.py for descriptors 1 and 2 of a worker.  Untrusted: whoever shows it escapes it.
"""

from __future__ import annotations

import os
import select
import threading
import time

_CHUNK_BYTES = 1 << 16  # the capacity of a Linux pipe: one read empties it
_DRAIN_NS = 1_000_000_000  # longest stay in `close`, for a writer that never stops


class BoundedLog:
    """Keeps at most `limit_bytes` of a stream, half from its start and half from its end.

    A failure is usually explained by its last line and caused on its first, so neither is dropped.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        """Append bytes; memory stays below `limit_bytes` plus twice the length of `data`."""
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess

    @property
    def dropped_bytes(self) -> int:
        """How many bytes of the middle are gone."""
        return self._dropped

    def text(self) -> str:
        """The stream as text, a note in place of what was dropped, undecodable bytes replaced."""
        if not self._dropped:
            return (self._head + self._tail).decode("utf-8", "replace")
        # A character cut in two would read as an error of the submission's.
        head = bytes(self._head[: len(self._head) - _unfinished(self._head)])
        tail = bytes(self._tail)
        for _ in range(3):
            if tail and tail[0] & 0xC0 == 0x80:
                tail = tail[1:]
        note = f"\n[... {self._dropped} bytes left out ...]\n"
        return head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")


def _unfinished(data: bytearray) -> int:
    """How many bytes at the end belong to a UTF-8 character that is not complete."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if length > back else 0
        if byte & 0x80 == 0:
            return 0
    return 0


class LogReader:
    """A thread that empties a pipe into a BoundedLog until `close`, or until its last writer ends.

    It owns `fd`.  It never blocks the caller: a grandchild that keeps the pipe open (FAULTS B03)
    delays nothing, since `close` takes what is there and leaves.
    """

    def __init__(self, fd: int, limit_bytes: int) -> None:
        self._fd = fd
        self._log = BoundedLog(limit_bytes)
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._closed = False
        os.set_blocking(fd, False)
        self._thread = threading.Thread(target=self._run, name="worker-log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # poll, not select: a judge may hold more than 1024 descriptors.
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if self._wake_read in ready or not self._take():
                return

    def _take(self) -> bool:
        """Read once; False at the end of the stream."""
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        with self._lock:
            self._log.feed(data)
        return bool(data)

    def _pending(self) -> bool:
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(0))

    def text(self) -> str:
        """What was printed so far."""
        with self._lock:
            return self._log.text()

    def close(self) -> None:
        """Take what the pipe still holds, then let go of it.  Idempotent, at most a second."""
        if self._closed:
            return
        self._closed = True
        os.write(self._wake_write, b"x")
        self._thread.join()
        until_ns = time.monotonic_ns() + _DRAIN_NS
        while time.monotonic_ns() < until_ns and self._pending() and self._take():
            pass
        for fd in (self._fd, self._wake_read, self._wake_write):
            os.close(fd)
