"""What the launcher takes away: system calls, files, signals, rights; honest work goes on."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness import landlock, seccomp
from harness.confine import Spec

ROOT = Path(__file__).resolve().parent.parent
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
PRELUDE = f"""\
import ctypes, errno, json, os, socket, subprocess, sys, threading
sys.path.insert(0, {str(ROOT)!r})
from harness import confine, landlock, seccomp
libc = ctypes.CDLL(None, use_errno=True)
confine.prctl(38, 1)
def install(**options):
    seccomp.install(seccomp.program(machine=os.uname().machine, **options))
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))
    return ctypes.get_errno()
def error(act, *arguments):
    try: act(*arguments)
    except OSError as found: return found.errno
    return 0
"""


def inside(code: str, *arguments: str) -> object:
    """What a fresh process prints as JSON after it has confined itself."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PRELUDE + code, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def column() -> int:
    machine = os.uname().machine
    if machine not in HEADERS:
        pytest.skip(f"no filter for {machine}: the levels that need one are not offered there")
    return list(HEADERS).index(machine)


@pytest.mark.parametrize("machine", list(HEADERS))
def test_system_call_numbers_are_the_headers(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not installed: apt-get install linux-libc-dev")
    text = HEADERS[machine].read_text()
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text))
    index = list(HEADERS).index(machine)
    for name, numbers in {**seccomp.DENIED, **seccomp.JUDGED, **seccomp.INTERPROCESS}.items():
        if name in known:  # a header may be older than a call
            assert numbers[index] == int(known[name]), name
        else:
            assert numbers[index] is None or numbers[index] >= 424, name  # type: ignore[operator]


@pytest.mark.parametrize("name", list(seccomp.DENIED))
def test_a_denied_call_is_refused(name: str) -> None:
    number = seccomp.DENIED[name][column()]
    if number is None:
        pytest.skip(f"this machine has no {name}")
    # Arguments that make an allowed call fail otherwise: EBADF, EFAULT or EINVAL, never EPERM.
    code = f"install(namespaces=True); print(call({number}, -1, -1, -1, -1, -1))"
    assert inside(code) == 1


def test_an_open_call_is_not_refused() -> None:
    column()
    code = (
        "install(namespaces=True)\n"
        "file = os.memfd_create('x'); os.ftruncate(file, 4096)\n"
        "print(json.dumps([os.listdir('/proc/self/task') != [], os.sched_setaffinity(0,\n"
        "    os.sched_getaffinity(0)), os.getpriority(0, 0)]))\n"
    )
    assert inside(code) == [True, None, os.getpriority(os.PRIO_PROCESS, 0)]


def test_new_namespaces_cannot_be_cloned_and_children_can() -> None:
    clone, clone3 = (seccomp.JUDGED[name][column()] for name in ("clone", "clone3"))
    code = (
        "install(namespaces=True)\n"
        f"new = [call({clone}, flag | 17, 0, 0, 0, 0) for flag in\n"
        "    (0x10000000, 0x20000000, 0x40000000, 0x20000, 0x2000000, 0x4000000, 0x8000000)]\n"
        "done = []\n"
        "thread = threading.Thread(target=lambda: done.append(1)); thread.start(); thread.join()\n"
        "child = subprocess.run(['/bin/true']).returncode\n"
        f"print(json.dumps([new, call({clone3}, 0, 0), done, child]))\n"
    )
    assert inside(code) == [[1] * 7, 38, [1], 0]


FAMILIES = "[error(socket.socket, f, socket.SOCK_STREAM) for f in (1, 2, 10, 16, 17, 38, 40)]"


def test_without_a_namespaces_only_local_sockets_can_be_made() -> None:
    column()
    code = f"install(namespaces=False); print(json.dumps({FAMILIES}))"
    assert inside(code) == [0, 1, 1, 1, 1, 1, 1]


def test_in_a_namespaces_exotic_families_stay_closed() -> None:
    column()
    code = (
        "install(namespaces=True)\n"
        "print(json.dumps([error(socket.socket, f, t) for f, t in\n"
        "    ((1, 1), (2, 1), (2, 2), (10, 1), (16, 3), (17, 3), (38, 5), (40, 1))]))\n"
    )
    assert inside(code) == [0, 0, 0, 0, 0, 1, 1, 1]


def test_without_namespaces_no_listener_is_reached_and_pairs_still_work() -> None:
    column()
    code = (
        "address = '\\0probe-' + str(os.getpid())\n"
        "listener = socket.socket(1); listener.bind(address); listener.listen()\n"
        "install(namespaces=False)\n"
        "one, two = socket.socketpair(); one.send(b'x')\n"
        "print(json.dumps([error(socket.socket(1).connect, address),\n"
        "    error(socket.socket, 1, socket.SOCK_DGRAM), two.recv(1).decode()]))\n"
    )
    assert inside(code) == [1, 1, "x"]


@pytest.mark.parametrize("name", list(seccomp.INTERPROCESS))
def test_shared_objects_are_refused_only_without_their_namespace(name: str) -> None:
    number = seccomp.INTERPROCESS[name][column()]
    code = f"print(call({number}, -1, -1, -1, -1))"
    assert inside("install(namespaces=False); " + code) == 1
    assert inside("install(namespaces=True); " + code) != 1


def test_the_signal_guard_leaves_a_worker_its_own_signals() -> None:
    column()
    code = (
        "import fcntl, signal\n"
        # Out of the guard's reach: it ends with its standard input.
        "child = subprocess.Popen(['/bin/cat'], stdin=subprocess.PIPE,\n"
        "    stdout=subprocess.DEVNULL, start_new_session=True)\n"
        "read, write = os.pipe()\n"
        "got = []\n"
        "signal.signal(signal.SIGUSR1, lambda *a: got.append(1))\n"
        "before = error(os.kill, child.pid, 0)\n"
        "install(namespaces=True, guard_pid=os.getpid())\n"
        "os.kill(os.getpid(), signal.SIGUSR1); signal.raise_signal(signal.SIGUSR1)\n"
        "os.kill(0, 0)\n"
        "print(json.dumps([before, error(os.kill, child.pid, 0), error(os.kill, -1, 0),\n"
        "    error(fcntl.fcntl, read, fcntl.F_SETOWN, child.pid),\n"
        "    error(fcntl.fcntl, read, 10, 9), error(fcntl.fcntl, read, fcntl.F_GETFL),\n"
        "    sum(got)]))\n"
    )
    assert inside(code) == [0, 1, 1, 1, 1, 0, 2]


def test_the_other_numbering_of_calls_is_absent() -> None:
    if column() != 0:
        pytest.skip("only x86_64 has a second numbering")
    assert inside("install(namespaces=True); print(call(0x40000000 | 39))") == 38


@pytest.mark.parametrize("machine", list(HEADERS))
@pytest.mark.parametrize("guard", [None, 4321])
def test_every_jump_of_the_filter_stays_inside_it(machine: str, guard: int | None) -> None:
    code = seccomp.program(machine=machine, namespaces=False, guard_pid=guard)
    lines = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    for at, (kind, yes, no, _) in enumerate(lines):
        if kind & 7 == 5:  # BPF_JMP
            assert at + 1 + max(yes, no) < len(lines)
    assert lines[-1][0] == 6  # BPF_RET


def test_another_architecture_has_no_filter() -> None:
    with pytest.raises(KeyError):
        seccomp.program(machine="riscv64", namespaces=True)


def needs_landlock() -> None:
    if landlock.version() == 0:
        pytest.skip("this kernel has no Landlock: boot with lsm=landlock,...")


def test_landlock_leaves_only_what_is_named() -> None:
    needs_landlock()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for name in ("read", "write", "other"):
            (folder / name).mkdir()
            (folder / name / "file").write_text("x")
        code = (
            "folder = sys.argv[1]\n"
            "landlock.restrict(read=[folder + '/read', '/no/such/path'],\n"
            "    write=[folder + '/write'], devices=['/dev/null'])\n"
            "def create(path): open(path, 'w').close()\n"
            "def look(path): open(path).read()\n"
            "print(json.dumps([\n"
            "    error(look, folder + '/read/file'), error(create, folder + '/read/new'),\n"
            "    error(look, folder + '/write/file'), error(create, folder + '/write/new'),\n"
            "    error(os.rename, folder + '/write/new', folder + '/write/newer'),\n"
            "    error(os.mknod, folder + '/write/node', 0o20600, os.makedev(1, 3)),\n"
            "    error(look, folder + '/other/file'), error(os.listdir, folder),\n"
            "    error(create, '/dev/null'), error(look, '/proc/self/stat'),\n"
            "    error(create, '/proc/self/comm')]))\n"
        )
        answers = inside(code, text)
    assert isinstance(answers, list)
    answers[5] = min(answers[5], 1)  # EPERM for a user, EACCES of Landlock for root
    assert answers == [0, 13, 0, 0, 0, 1, 13, 13, 0, 0, 13]


def test_landlock_lets_cuda_name_its_threads() -> None:
    needs_landlock()
    code = (
        "landlock.restrict(read=[], write=[], devices=[], proc=landlock.PROC_WRITE)\n"
        "open('/proc/self/comm', 'w').write('named')\n"
        "print(json.dumps(open('/proc/self/comm').read()))\n"
    )
    assert inside(code) == "named\n"


def test_landlock_keeps_signals_inside() -> None:
    needs_landlock()
    if not landlock.scopes_signals(landlock.version()):
        pytest.skip("this Landlock is older than version 6: the signal guard stands in")
    code = (
        "landlock.restrict(read=['/'], write=[], devices=['/dev/null'])\n"
        "child = subprocess.Popen(['/bin/sleep', '60'])\n"
        "own = error(child.kill); child.wait()\n"
        "print(json.dumps([error(os.kill, os.getppid(), 0), own]))\n"
    )
    assert inside(code) == [1, 0]


def test_a_spec_survives_its_journey() -> None:
    spec = Spec(
        argv=("/bin/true", "\u00e9 '\""),
        cwd="/",
        channel_fd=7,
        status_fd=8,
        uid=None,
        file_bytes=1,
        open_files=2,
        processes=3,
        filtered=True,
        namespaces=False,
        supervise=True,
        read=("/usr",),
    )
    assert Spec.from_json(spec.to_json()) == spec
