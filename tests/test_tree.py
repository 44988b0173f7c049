"""A process tree is found, measured and ended, whatever its members are called."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from harness import tree

#: A child of ours with one child of its own, whose name holds what /proc separates fields by.
CODE = (
    "import os, signal\n"
    "if os.fork() == 0: open('/proc/self/comm', 'w').write(') R 1 (')\n"
    "else: os.write(1, b'up')\n"
    "signal.pause()\n"
)


@pytest.fixture
def root() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", CODE], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(2) == b"up"
    until = time.monotonic() + 5
    while tree.name(tree.descendants(process.pid)[0]) != ") R 1 (":
        assert time.monotonic() < until
    yield process.pid
    tree.end(process.pid, deadline_ns=time.monotonic_ns() + 5_000_000_000)
    process.stdout.close()
    process.wait()


def test_children_are_found_with_and_without_the_kernels_list(root: int) -> None:
    assert root in tree.children(os.getpid())
    assert set(tree.children(root)) == set(tree._children_by_scan(root))
    assert len(tree.descendants(root)) == 1


def test_a_tree_has_memory_threads_and_cpu_time(root: int) -> None:
    usage = tree.usage(root)
    assert usage.threads == 2
    assert 1 << 20 < usage.memory_bytes < 1 << 28
    assert 0 < tree.proportional_bytes(root) <= usage.memory_bytes
    assert tree.cpu_ns(root) > 0


def test_a_tree_that_is_gone_has_none_of_them() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert tree.descendants(process.pid) == ()
    assert tree.usage(process.pid) == tree.Usage(0, 0)
    assert tree.cpu_ns(process.pid) == 0
    assert not tree.alive(process.pid)
    assert tree.name(process.pid) == "?"


def test_ending_a_tree_leaves_nobody_alive(root: int) -> None:
    (child,) = tree.descendants(root)
    assert tree.end(root, deadline_ns=time.monotonic_ns() + 5_000_000_000) == ()
    assert not tree.alive(root)
    assert not tree.alive(child)


def test_everything_is_stopped_before_the_first_is_killed(
    root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed one by one, a fork bomb refills the places that it loses."""
    (child,) = tree.descendants(root)
    send, states = tree._send, []

    def look_first(pids: Iterable[int], number: signal.Signals) -> None:
        until = time.monotonic() + 2
        while (fields := tree._stat(child)) and fields[0] != "T" and time.monotonic() < until:
            time.sleep(0.001)
        states.append(fields and fields[0])
        send(pids, number)

    monkeypatch.setattr(tree, "_send", look_first)
    assert tree.end(root, deadline_ns=time.monotonic_ns() + 9_000_000_000, keep=True) == ()
    assert states[0] == "T"


def test_the_root_can_be_spared(root: int) -> None:
    (child,) = tree.descendants(root)
    deadline_ns = time.monotonic_ns() + 5_000_000_000
    assert tree.end(root, deadline_ns=deadline_ns, keep=True) == ()
    assert tree.alive(root)
    assert not tree.alive(child)


def test_a_stopped_tree_works_no_more_until_it_is_resumed() -> None:
    code = (
        "import os\nos.fork(); os.fork()\nos.write(1, b'x')\n"
        "while os.getppid() != 1: pass"  # a fork whose parent is gone ends by itself
    )
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.read(1) == b"x"
        own = os.getpid()
        stopped = tree.stop(own, deadline_ns=time.monotonic_ns() + 5_000_000_000)
        assert len(stopped.members) >= 4 and stopped.still
        before_ns = tree.cpu_ns(process.pid)
        time.sleep(0.05)
        assert tree.cpu_ns(process.pid) == before_ns
        tree.resume(stopped.members)
        until = time.monotonic() + 10
        while tree.cpu_ns(process.pid) == before_ns:
            assert time.monotonic() < until
    finally:
        tree.end(process.pid, deadline_ns=time.monotonic_ns() + 5_000_000_000)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


#: A child whose first thread waits in vfork() for ever, while the second one writes on.
VFORK = """
import ctypes, mmap, os, threading, time
def tick():
    while True:
        os.write(1, b"x")
        time.sleep(0.001)
if os.fork() == 0:
    threading.Thread(target=tick, daemon=True).start()
    page = mmap.mmap(-1, 4096, prot=7)
    # vfork; test eax, eax; jne to the return; pause, for ever; ret
    page.write(bytes.fromhex("b83a0000000f0585c07509b8220000000f05ebf7c3"))
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
os.wait()
"""


def wait_until(done: Callable[[], object]) -> None:
    until = time.monotonic() + 10
    while not done():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its machine code is x86_64's")
def test_threads_stop_although_their_first_one_waits_in_vfork() -> None:
    top = subprocess.Popen([sys.executable, "-I", "-S", "-c", VFORK], stdout=subprocess.PIPE)
    output = top.stdout
    assert output is not None
    try:
        assert output.read(50)
        (child,) = tree.children(top.pid)
        wait_until(lambda: (tree._stat(child) or "?")[0] == "D")
        stopped = tree.stop(top.pid, deadline_ns=time.monotonic_ns() + 5_000_000_000)
        assert child in stopped.members and stopped.still
        os.set_blocking(output.fileno(), False)
        output.read()  # what it had written before
        time.sleep(0.1)
        assert not output.read()
        tree.resume(stopped.members)
        wait_until(output.read)
    finally:
        tree.end(top.pid, deadline_ns=time.monotonic_ns() + 5_000_000_000)
        top.wait()
        output.close()


#: Woken by SIGCONT, it stops itself again at once.
WAKES = """
import os, signal
if os.fork() == 0:
    signal.signal(signal.SIGCONT, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
    os.write(1, b"x")
    while True:
        signal.pause()
os.wait()
"""


@pytest.mark.parametrize("counted", [True, False])
def test_a_process_that_woke_is_known_though_it_stands_still_again(
    counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against tests/exploits/zoo/b8_wakes_itself.py and b8_born_in_the_walk.py."""
    top = subprocess.Popen([sys.executable, "-I", "-S", "-c", WAKES], stdout=subprocess.PIPE)
    output = top.stdout
    assert output is not None
    try:
        assert output.read(1)
        if not counted:  # a kernel that keeps no such statistics
            monkeypatch.setattr(tree, "_SCHEDSTAT", "no such file")
        stopped = tree.stop(top.pid, deadline_ns=time.monotonic_ns() + 5_000_000_000)
        (child,) = tree.children(top.pid)
        assert stopped.still and set(stopped.turns) == {(child, child)}
        time.sleep(0.02)
        assert tree.turns(stopped.members) == stopped.turns
        os.kill(child, signal.SIGCONT)
        wait_until(lambda: tree.turns(stopped.members) != stopped.turns)
        wait_until(lambda: not tree._running(child))
        assert tree.turns(stopped.members) != stopped.turns
    finally:
        tree.end(top.pid, deadline_ns=time.monotonic_ns() + 5_000_000_000)
        top.wait()
        output.close()


def test_threads_that_follow_one_another_do_not_stand_still(
    root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lives so shortly that it is gone when it is signalled or looked at."""
    (child, *_) = tree.descendants(root)
    gone = iter(range(10**8, 10**9))
    monkeypatch.setattr(tree, "_threads", lambda pid: [next(gone)])
    assert tree._running(child)
    assert not tree._running(10**8)  # a process that is gone does nothing
    assert tree.turns([child]) != tree.turns([child])


def test_a_tree_that_does_not_stop_in_time_is_said_to_move(
    root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_stop_threads", lambda pids: None)
    assert not tree.stop(os.getpid(), deadline_ns=time.monotonic_ns()).still


def test_memory_in_files_without_a_name_is_counted_once_and_mapped_or_not() -> None:
    code = (
        "import mmap, os\n"
        "fd = os.memfd_create('hidden'); os.ftruncate(fd, 8 << 20)\n"
        "with mmap.mmap(fd, 8 << 20) as memory: memory.write(b'z' * (8 << 20))\n"
        "os.fork(); os.write(1, b'x'); os.read(0, 1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.read(2) == b"xx"
    assert tree.held_bytes(process.pid) == 8 << 20
    assert tree.usage(process.pid).shared_bytes < 1 << 20
    process.stdin.close()
    process.stdout.close()
    process.wait()
    assert tree.held_bytes(process.pid) == 0


def test_what_the_kernel_ended_for_want_of_memory_is_counted_where_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tree.oom_kills() >= 0
    monkeypatch.setattr(tree, "_PROC", tmp_path)
    assert tree.oom_kills() == 0
    (tmp_path / "vmstat").write_text("pgfault 9\noom_kill 7\noom_kill_x 8\n")
    assert tree.oom_kills() == 7
