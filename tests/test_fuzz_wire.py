"""100,000 random and mutated frames: each a message or a ProtocolError, in bounded memory."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator

from harness import wire

FRAMES = 100_000
SEED = 20260301
#: What the judge may take for the whole flood; one frame is 64 KiB at most.
MEMORY_BYTES = 64 << 20
_SEEDS = [
    {"kind": "hello", "version": 1, "facts": ["torch 2.13", "python 3.11"]},
    {"kind": "ready", "seq": 7},
    {"kind": "queued", "seq": 7},
    {
        "kind": "done",
        "seq": 7,
        "claimed_ns": 21500,
        "host_ns": 9000,
        "where": ["output:0"],
        "facts": [],
    },
    {"kind": "fault", "seq": 7, "verdict": "runtime_error", "message": "no", "detail": "x"},
]
_PIECES = [
    b'"kind"',
    b'"seq"',
    b"NaN",
    b"1e999",
    b"-1",
    b"true",
    b"null",
    b"[[[[",
    b'{"a":',
    b"\\ud800",
    b"\\u0000",
    b"\xff",
    b"\xc3\x28",
    b"\0",
    b"9" * 400,
    b"[]",
    b'"' * 3,
]
_VALUES: list[object] = [None, True, -1, 0, 1.5, 2**63, 10**300, "", "x" * 20_000, [], [[]], {}]


def frames(rng: random.Random) -> Iterator[bytes]:
    """Noise, honest messages with damage, and honest shapes with other values."""
    for number in range(FRAMES):
        kind = number % 4
        if kind == 0:
            yield rng.randbytes(rng.choice((0, 1, 2, 16, 64, 256)))
        elif kind == 1:
            yield _damaged(rng)
        elif kind == 2:
            fields = dict(rng.choice(_SEEDS))
            fields[rng.choice([*fields, "other"])] = rng.choice(_VALUES)
            yield json.dumps(fields).encode()
        else:
            pieces = (rng.choice([*_PIECES, b"{", b"}", b":", b",", b"[", b"]"]) for _ in range(12))
            yield b"".join(pieces)
    yield b"[" * wire.MAX_FRAME_BYTES
    yield rng.randbytes(wire.MAX_FRAME_BYTES)
    yield b'{"kind":' * (wire.MAX_FRAME_BYTES // 8)
    yield b"9" * (wire.MAX_FRAME_BYTES + 1)


def _damaged(rng: random.Random) -> bytes:
    frame = bytearray(json.dumps(rng.choice(_SEEDS)).encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(frame) + 1)
        match rng.randrange(4):
            case 0:
                del frame[at : at + rng.randint(1, 6)]
            case 1:
                frame[at:at] = rng.choice(_PIECES)
            case 2 if at < len(frame):
                frame[at] ^= 1 << rng.randrange(8)
            case _:
                frame[at:at] = frame[: rng.randint(0, len(frame))]
    return bytes(frame)


def _understood(frame: bytes) -> bool:
    try:
        message = wire.parse_reply(frame)
    except wire.ProtocolError:
        return False
    schema = wire.REPLIES[message.kind]
    assert message.fields.keys() == schema.keys()
    assert all(fits(message[name]) for name, fits in schema.items())
    return True


def test_no_frame_is_anything_but_a_message_or_a_protocol_error() -> None:
    good = sum(_understood(frame) for frame in frames(random.Random(SEED)))
    assert 100 < good < FRAMES // 2, "the fuzzer must reach both sides of the line"


def test_a_flood_of_frames_takes_no_more_than_its_share_of_memory() -> None:
    flood = [
        *(frame for _, frame in zip(range(2000), frames(random.Random(SEED + 1)), strict=False)),
        b"[" * wire.MAX_FRAME_BYTES,
        b'{"a":[' * (wire.MAX_FRAME_BYTES // 6),
        b"[" + b"0," * (wire.MAX_FRAME_BYTES // 2 - 2) + b"0]",
        b"[" + b"{}," * (wire.MAX_FRAME_BYTES // 3 - 2) + b"{}]",
        b'{"kind": "fault", "seq": ' + b"9" * 60_000 + b"}",
    ]
    tracemalloc.start()
    try:
        for frame in flood:
            _understood(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES


def test_the_channel_itself_survives_every_frame() -> None:
    ours, theirs = wire.channel_pair()
    rng = random.Random(SEED + 2)
    with theirs:
        for number, frame in enumerate(frames(rng)):
            if number == 5000:
                break
            if not frame:
                continue  # an empty packet is an end: tests/test_wire.py
            theirs.send(frame)
            try:
                ours.receive(1_000_000_000)
            except wire.ProtocolError:
                continue
    ours.close()
