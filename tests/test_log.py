"""The worker's log: bounded, both ends kept, never blocking."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.log import BoundedLog, LogReader


def test_a_short_log_is_kept_whole() -> None:
    log = BoundedLog(100)
    log.feed(b"one\n")
    log.feed(b"two\n")
    assert log.text() == "one\ntwo\n"
    assert log.dropped_bytes == 0


def test_a_log_of_exactly_the_limit_is_kept_whole() -> None:
    log = BoundedLog(10)
    log.feed(b"0123456789")
    assert (log.text(), log.dropped_bytes) == ("0123456789", 0)


def test_a_long_first_line_does_not_hide_the_last_one() -> None:
    log = BoundedLog(1000)
    log.feed(b"x" * 20_000 + b"\nerror: the reason\n")
    text = log.text()
    assert text.startswith("x" * 500)
    assert text.endswith("error: the reason\n")
    assert "19019 bytes left out" in text


def test_many_short_lines_keep_the_first_and_the_last() -> None:
    log = BoundedLog(1000)
    for number in range(100_000):
        log.feed(f"line {number}\n".encode())
    assert log.text().startswith("line 0\n")
    assert log.text().endswith("line 99999\n")


def test_undecodable_bytes_are_replaced() -> None:
    log = BoundedLog(100)
    log.feed(b"\xff\xfe\x00\x1b[2J")
    assert log.text() == "\ufffd\ufffd\x00\x1b[2J"


@pytest.mark.parametrize("limit", range(20, 32))
def test_a_cut_inside_a_character_shows_no_replacement(limit: int) -> None:
    log = BoundedLog(limit)
    log.feed("\u00e9\u20ac\U0001f600".encode() * 20)
    assert "\ufffd" not in log.text()


@given(st.lists(st.binary(max_size=50)), st.integers(0, 64))
def test_nothing_is_lost_without_being_counted(pieces: list[bytes], limit: int) -> None:
    log = BoundedLog(limit)
    for piece in pieces:
        log.feed(piece)
    whole = b"".join(pieces)
    assert log.dropped_bytes == max(0, len(whole) - limit)
    log.text()


def test_a_reader_collects_until_the_writer_ends() -> None:
    read, write = os.pipe()
    reader = LogReader(read, 1 << 16)
    os.write(write, b"hello")
    os.close(write)
    reader.close()
    assert reader.text() == "hello"
    reader.close()


def test_a_writer_that_stays_does_not_hold_up_close() -> None:
    read, write = os.pipe()
    reader = LogReader(read, 1 << 16)
    os.write(write, b"last words")
    started = time.monotonic()
    reader.close()
    assert time.monotonic() - started < 0.5
    assert reader.text() == "last words"
    os.close(write)


def test_a_flood_is_drained_and_bounded() -> None:
    read, write = os.pipe()
    reader = LogReader(read, 1000)
    for _ in range(200):
        os.write(write, b"y" * 65536)
    os.close(write)
    reader.close()
    assert len(reader.text()) < 1100
    assert f"{200 * 65536 - 1000} bytes left out" in reader.text()
