"""The control channel: what is a message, what is not, and how long the judge waits for one."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import wire

COUNTS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
HONEST: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "hello": st.fixed_dictionaries({"version": COUNTS, "facts": st.lists(TEXTS, max_size=5)}),
    "ready": st.fixed_dictionaries({"seq": COUNTS}),
    "queued": st.fixed_dictionaries({"seq": COUNTS}),
    "done": st.fixed_dictionaries(
        {
            "seq": COUNTS,
            "claimed_ns": COUNTS,
            "host_ns": COUNTS,
            "where": st.lists(TEXTS, max_size=5),
            "facts": st.lists(TEXTS, max_size=5),
        }
    ),
    "observed": st.fixed_dictionaries(
        {
            "seq": COUNTS,
            "kernels": st.lists(TEXTS, max_size=5),
            "facts": st.lists(TEXTS, max_size=5),
        }
    ),
    "fault": st.fixed_dictionaries(
        {"seq": COUNTS, "verdict": TEXTS, "message": TEXTS, "detail": TEXTS}
    ),
}
SECOND_NS = 1_000_000_000


def ready(**changes: object) -> bytes:
    return json.dumps({"kind": "ready", "seq": 1} | changes).encode()


def fault(message: str) -> bytes:
    fields = {"kind": "fault", "seq": 1, "verdict": "crashed", "message": message, "detail": ""}
    return json.dumps(fields).encode()


@given(st.sampled_from(sorted(HONEST)).flatmap(lambda k: st.tuples(st.just(k), HONEST[k])))
def test_every_honest_message_comes_through_unchanged(message: tuple[str, dict[str, Any]]) -> None:
    kind, fields = message
    found = wire.parse_reply(json.dumps({"kind": kind, **fields}).encode())
    assert (found.kind, found.fields) == (kind, fields)


def test_the_table_of_replies_is_tested_as_a_whole() -> None:
    assert set(HONEST) == set(wire.REPLIES)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"ready"',
        b"{}",
        b'{"kind": "ready"}',
        b'{"kind": 1, "seq": 1}',
        b'{"kind": "order", "seq": 1}',
        b'{"kind": "ready", "seq": 1} x',
        b'{"kind": "ready", "seq": 1, "seq": 2}',
        b'{"kind": "queued", "kind": "ready", "seq": 1}',
        b'{"kind": "ready", "seq": NaN}',
        b'{"kind": "ready", "seq": -Infinity}',
        b'{"kind": "ready", "seq": 1e999}',
        b'{"kind": "ready", "seq": 1.0}',
        b'{"kind": "ready", "seq": true}',
        b'{"kind": "ready", "seq": null}',
        b'{"kind": "ready", "seq": "1"}',
        b'{"kind": "ready", "seq": [1]}',
        b'{"kind": "ready", "seq": ' + b"9" * 5000 + b"}",
        b'{"kind": "ready", "seq": 1, "\\ud800": 1}',
        b"\xff\xfe",
        b"\xef\xbb\xbf" + ready(),
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"\0" * 100,
        ready(seq=-1),
        ready(seq=2**63),
        ready(extra=1),
        ready()[:-1],
        fault("x" * (wire.MAX_TEXT + 1)),
        fault("\ud800"),
        fault("x" * wire.MAX_FRAME_BYTES),
        json.dumps({"kind": "hello", "version": 1, "facts": ["x"] * 5000}).encode(),
        json.dumps({"kind": "hello", "version": 1, "facts": "x"}).encode(),
        json.dumps({"kind": "hello", "version": 1, "facts": [1]}).encode(),
    ],
)
def test_what_no_honest_worker_sends_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(wire.ProtocolError) as caught:
        wire.parse_reply(frame)
    assert len(str(caught.value)) < 200, "it must not repeat what it was sent"


def test_an_error_text_holds_nothing_of_what_was_sent() -> None:
    with pytest.raises(wire.ProtocolError) as caught:
        wire.parse_reply(ready(secret_looking_key=1))
    assert "secret" not in str(caught.value)


def test_a_message_keeps_its_boundaries_and_its_time() -> None:
    ours, theirs = wire.channel_pair()
    with theirs:
        theirs.send(ready(seq=1))
        theirs.send(ready(seq=2))
        before_ns = time.monotonic_ns()
        first, second = ours.receive(SECOND_NS), ours.receive(SECOND_NS)
        assert (first["seq"], second["seq"]) == (1, 2)
        assert before_ns <= first.arrived_ns <= second.arrived_ns
    ours.close()


def test_silence_is_told_from_an_end() -> None:
    ours, theirs = wire.channel_pair()
    with pytest.raises(wire.Silence):
        ours.receive(20_000_000)
    with pytest.raises(wire.Silence):
        ours.receive(-5)
    theirs.close()
    with pytest.raises(wire.Closed):
        ours.receive(SECOND_NS)
    with pytest.raises(wire.Closed):
        ours.send("quit")
    ours.close()


def test_a_packet_larger_than_the_limit_is_refused_whole() -> None:
    ours, theirs = wire.channel_pair()
    with theirs:
        theirs.send(ready(pad="x" * (wire.MAX_FRAME_BYTES + 100)))
        theirs.send(ready())
        with pytest.raises(wire.ProtocolError):
            ours.receive(SECOND_NS)
        assert ours.receive(SECOND_NS)["seq"] == 1
    ours.close()


def test_an_empty_packet_is_an_end_and_not_a_loop() -> None:
    ours, theirs = wire.channel_pair()
    with theirs:
        theirs.send(b"")
        with pytest.raises(wire.Closed):
            ours.receive(SECOND_NS)
    ours.close()


def test_descriptors_that_a_worker_attaches_are_not_kept() -> None:
    ours, theirs = wire.channel_pair()
    with theirs:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            socket.send_fds(theirs, [ready()], [0, 1, 2])
            ours.receive(SECOND_NS)
        assert len(os.listdir("/proc/self/fd")) == before
    ours.close()


def test_orders_carry_descriptors_to_the_worker() -> None:
    ours, theirs = wire.channel_pair()
    read, write = os.pipe()
    ours.send("map", descriptors=[read], seq=3)
    order, (received,) = wire.Channel(theirs).receive_order()
    os.write(write, b"x")
    assert (order["kind"], order["seq"], os.read(received, 1)) == ("map", 3, b"x")
    for descriptor in (read, write, received):
        os.close(descriptor)
    theirs.close()
    ours.close()


def test_an_order_that_does_not_fit_or_is_no_json_is_our_own_bug() -> None:
    ours, theirs = wire.channel_pair()
    with theirs:
        with pytest.raises(ValueError, match="does not fit"):
            ours.send("map", tree="x" * wire.MAX_FRAME_BYTES)
        with pytest.raises(ValueError, match="JSON"):
            ours.send("call", seed=float("nan"))
    ours.close()
