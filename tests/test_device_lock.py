"""One submission per device at a time, and whoever waits says so."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness import device_lock

HOLDER = (
    "import sys, time\n"
    "sys.path.insert(0, '.')\n"
    "from harness import device_lock\n"
    "with device_lock.hold('cpu', waiting=lambda: None):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(100)\n"
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(device_lock, "_PAUSE_S", 0.005)
    monkeypatch.setattr(device_lock, "_TRIES_PER_WORD", 2)


def test_a_free_device_is_had_without_a_word() -> None:
    words: list[str] = []
    with device_lock.hold("cuda:0", waiting=lambda: words.append("waiting")):
        pass
    assert not words


def test_who_waits_says_so_again_and_again_and_goes_on_when_it_is_free() -> None:
    words: list[float] = []
    release, held = threading.Event(), threading.Event()

    def first() -> None:
        with device_lock.hold("cpu", waiting=lambda: None):
            held.set()
            release.wait(30)

    def heard() -> None:
        words.append(time.monotonic())
        if len(words) == 3:
            release.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert held.wait(30)
    with device_lock.hold("cpu", waiting=heard):
        assert len(words) >= 3
    thread.join()


def test_two_devices_do_not_wait_for_each_other() -> None:
    with (
        device_lock.hold("cuda:0", waiting=pytest.fail),
        device_lock.hold("cuda:1", waiting=pytest.fail),
    ):
        pass


def test_a_holder_that_was_killed_holds_nothing() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.read(4) == b"held"
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with device_lock.hold("cpu", waiting=lambda: None):
        pass


def test_another_user_can_wait_for_a_device_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        with device_lock.hold("cpu", waiting=lambda: None):
            assert (tmp_path / "harness-cpu.lock").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(old)


def test_a_lock_that_another_user_makes_at_the_same_moment_is_waited_for_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, flags = tmp_path / "harness-cpu.lock", os.open, list[int]()

    def open_(name: Path, how: int, mode: int = 0o777) -> int:
        flags.append(how)
        try:
            return real(name, how, mode)
        finally:
            os.close(real(path, os.O_CREAT))  # the other user: after we looked, before we make one

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "fchmod", refused)
    with device_lock.hold("cpu", waiting=pytest.fail):
        pass
    assert [bool(how & os.O_CREAT) for how in flags] == [False, True, False]


def test_a_lock_can_be_opened_by_others_from_its_first_moment_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, modes = os.open, list[int]()

    def open_(name: Path, how: int, mode: int = 0o777) -> int:
        descriptor = real(name, how, mode)
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        return descriptor

    monkeypatch.setattr(os, "open", open_)
    mask = os.umask(0o077)
    try:
        with device_lock.hold("cpu", waiting=pytest.fail):
            assert os.umask(0o077) == 0o077
    finally:
        os.umask(mask)
    assert modes == [0o644]
