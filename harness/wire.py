"""The control channel: one small JSON message per packet, between judge and worker.

The judge's side of it reads bytes that a hostile process wrote, so everything is bounded before it
is looked at, every field has one type, and whatever does not fit is a ProtocolError.  No pickle:
unpickling runs code of the sender's choice (tests/exploits/zoo/j5_pickle_reply.py).
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

VERSION = 1
#: Largest packet either side accepts.  A layout of 300 buffers takes about 30 KiB.
MAX_FRAME_BYTES = 1 << 16
MAX_TEXT = 1 << 14
MAX_ITEMS = 4096
#: Linux passes at most 253 descriptors in one message (SCM_MAX_FD).
MAX_DESCRIPTORS = 250
_INT_RANGE = 1 << 63


class ProtocolError(Exception):
    """The other side sent something that no honest worker sends."""


class Silence(Exception):
    """Nothing arrived before the deadline."""


class Closed(Exception):
    """The other side is gone."""


@dataclass(frozen=True, slots=True)
class Message:
    """One checked message: `fields` holds exactly the fields of its kind, each of its type."""

    kind: str
    fields: dict[str, Any]
    arrived_ns: int = 0  # the judge's monotonic clock when the packet could be read

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def _text(value: Any) -> bool:
    """Bounded, and without lone surrogates, which no database or terminal can encode."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _INT_RANGE


def _texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_ITEMS and all(map(_text, value))


#: What a worker may say, and nothing else.
REPLIES: dict[str, dict[str, Callable[[Any], bool]]] = {
    "hello": {"version": _count, "facts": _texts},
    "ready": {"seq": _count},  # answers map, idle and import
    "queued": {"seq": _count},  # the call has returned, its work may still run (CUDA)
    "done": {
        "seq": _count,
        "claimed_ns": _count,
        "host_ns": _count,
        "where": _texts,
        "facts": _texts,
    },
    "observed": {"seq": _count, "kernels": _texts, "facts": _texts},
    "fault": {"seq": _count, "verdict": _text, "message": _text, "detail": _text},
}


def parse_reply(frame: bytes) -> Message:
    """Check one packet of a worker's.  Raises ProtocolError and nothing else."""
    if len(frame) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of more than {MAX_FRAME_BYTES} bytes")
    try:
        data = json.loads(
            frame.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        # ValueError covers bad UTF-8, bad JSON and integers of absurd length.
        raise ProtocolError(f"not a JSON message ({type(error).__name__})") from None
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise ProtocolError("a message without a kind")
    kind = data.pop("kind")
    schema = REPLIES.get(kind)
    if schema is None:
        raise ProtocolError("a message of unknown kind")
    if data.keys() != schema.keys():
        raise ProtocolError(f"a {kind!r} message with missing or unknown fields")
    for name, fits in schema.items():
        if not fits(data[name]):
            raise ProtocolError(f"a {kind!r} message whose {name!r} is out of range")
    return Message(kind, data)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class Channel:
    """One end of a SOCK_SEQPACKET pair; the kernel keeps packet boundaries."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def send(self, kind: str, *, descriptors: Sequence[int] = (), **fields: object) -> None:
        """Send one message, with open descriptors beside it.  Raises Closed."""
        frame = json.dumps({"kind": kind, **fields}, allow_nan=False).encode()
        if len(frame) > MAX_FRAME_BYTES:
            raise ValueError(f"a {kind!r} message of {len(frame)} bytes does not fit a packet")
        try:
            if descriptors:
                socket.send_fds(self._sock, [frame], list(descriptors))
            else:
                self._sock.send(frame)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def receive(self, timeout_ns: int) -> Message:
        """The judge's read: one checked reply, or Silence, Closed or ProtocolError.

        Descriptors that a worker attaches are discarded by the kernel, since none are asked for.
        """
        deadline_ns = time.monotonic_ns() + timeout_ns
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        left_ms = max(0, -(-(deadline_ns - time.monotonic_ns()) // 1_000_000))
        if not poller.poll(left_ms):
            raise Silence
        arrived_ns = time.monotonic_ns()
        try:
            frame = self._sock.recv(MAX_FRAME_BYTES + 1)
        except ConnectionResetError:
            raise Closed from None
        if not frame:
            raise Closed
        return replace(parse_reply(frame), arrived_ns=arrived_ns)

    def receive_order(self) -> tuple[dict[str, Any], list[int]]:
        """The worker's read: blocks for one order of the judge's and its descriptors."""
        frame, descriptors, _, _ = socket.recv_fds(self._sock, MAX_FRAME_BYTES + 1, MAX_DESCRIPTORS)
        if not frame:
            raise Closed
        order: dict[str, Any] = json.loads(frame)
        return order, descriptors


def channel_pair() -> tuple[Channel, socket.socket]:
    """The judge's end, and the raw socket that the worker inherits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Large enough for one full packet each way; a worker that floods blocks itself.
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_FRAME_BYTES)
    return Channel(ours), theirs
