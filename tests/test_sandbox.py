"""A worker's life at every level: started, confined, limited, ended with all that it made."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness import tree
from harness.errors import SandboxError
from harness.model import Isolation, Limits
from tests.workers import (
    make_plan,
    require,
    running,
    scratch_folder,
    wait_for_end,
    wait_until_closed,
)

ROOT = Path(__file__).resolve().parent.parent
SAY = "import os, socket; say = socket.socket(fileno=3).sendall\n"
FOREVER = "import signal; say(b'up'); signal.pause()\n"


@pytest.fixture(params=list(Isolation))
def level(request: pytest.FixtureRequest) -> Isolation:
    chosen: Isolation = request.param
    require(chosen)
    return chosen


@pytest.fixture(params=[Isolation.SANDBOX, Isolation.RESTRICTED])
def isolated(request: pytest.FixtureRequest) -> Isolation:
    chosen: Isolation = request.param
    require(chosen)
    return chosen


@pytest.fixture
def scratch() -> Iterator[Path]:
    with scratch_folder() as folder:
        yield folder


def run(scratch: Path, level: Isolation, code: str, *arguments: str) -> tuple[str, str]:
    """How a program ended and what it printed."""
    with running(make_plan(scratch, code, *arguments), level) as (confined, _):
        ending = wait_for_end(confined)
    return ending, confined.log()


def test_a_worker_talks_on_descriptor_3(scratch: Path, level: Isolation) -> None:
    with running(make_plan(scratch, SAY + "say(b'hello')"), level) as (_, channel):
        assert channel.recv(16) == b"hello"


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("import os; os._exit(0)", "exit code 0"),
        ("raise SystemExit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "signal SIGKILL"),
        ("import os; os.abort()", "signal SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "signal SIGSEGV"),
    ],
)
def test_its_end_is_told_in_words(scratch: Path, level: Isolation, code: str, ending: str) -> None:
    with running(make_plan(scratch, code), level) as (confined, _):
        assert wait_for_end(confined) == ending
    assert confined.poll() == ending


def test_only_its_own_descriptors_are_open(scratch: Path, level: Isolation) -> None:
    code = (
        "import os\n"
        "for fd in range(64):\n"
        "    try: os.fstat(fd); print(fd, end=' ')\n"
        "    except OSError: pass\n"
    )
    with open("/dev/null", "rb") as stray:
        os.set_inheritable(stray.fileno(), True)
        assert run(scratch, level, code) == ("exit code 0", "0 1 2 3 ")


def test_its_standard_input_is_empty(scratch: Path, level: Isolation) -> None:
    assert run(scratch, level, "print(repr(open(0).read()))")[1] == "''\n"


def test_its_variables_are_those_of_the_plan(
    scratch: Path, level: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    plan = make_plan(scratch, "import os; print('\\n'.join(sorted(os.environ)))")
    with running(plan, level) as (confined, _):
        wait_for_end(confined)
    extra = set(confined.log().split()) - {name for name, _ in plan.environment}
    # PWD is bubblewrap's; LC_CTYPE is python's own, set at start.
    assert extra <= {"PWD", "LC_CTYPE", "TORCHINDUCTOR_COMPILE_THREADS"}


def test_its_folder_is_its_home_and_its_output_stays(scratch: Path, level: Isolation) -> None:
    code = (
        "import os, tempfile\n"
        "assert os.environ['HOME'].startswith(os.getcwd())\n"
        "assert tempfile.gettempdir().startswith(os.getcwd())\n"
        "open('built', 'w').write('x')\n"
    )
    assert run(scratch, level, code) == ("exit code 0", "")
    assert (scratch / "built").read_text() == "x"


def test_limits_hold(scratch: Path, level: Isolation) -> None:
    code = (
        "import resource as r\n"
        "print([r.getrlimit(x) for x in (r.RLIMIT_CORE, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE)])\n"
        "open('big', 'wb').truncate(4097)\n"
    )
    limits = Limits(file_bytes=4096, open_files=77)
    with running(make_plan(scratch, code, limits=limits), level) as (confined, _):
        assert wait_for_end(confined) == "exit code 1"
    assert "[(1, 1), (4096, 4096), (77, 77)]" in confined.log()
    assert "File too large" in confined.log()


def test_address_space_is_not_limited(scratch: Path, level: Isolation) -> None:
    code = "import resource as r; print(r.getrlimit(r.RLIMIT_AS)[0])"
    assert run(scratch, level, code)[1] == "-1\n"


ORPHAN = SAY + (
    "import signal, time\n"
    "for _ in range(3):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        if os.fork() == 0:\n"
    "            signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "            while True: time.sleep(1)\n"
    "        os._exit(0)\n"
    "time.sleep(0.05)\n"
)


def test_a_kill_ends_orphans_of_other_sessions(scratch: Path, level: Isolation) -> None:
    with running(make_plan(scratch, ORPHAN + FOREVER), level) as (confined, channel):
        assert channel.recv(16) == b"up"
        started = time.monotonic()
        confined.kill()
        assert time.monotonic() - started < 3
        assert confined.leftovers() == ()
        wait_until_closed(channel)


def test_a_worker_that_ends_takes_its_orphans_along(scratch: Path, level: Isolation) -> None:
    with running(make_plan(scratch, ORPHAN + "say(b'up')"), level) as (confined, channel):
        assert wait_for_end(confined) == "exit code 0"
        wait_until_closed(channel)


def test_a_judge_that_is_killed_takes_its_worker_along(scratch: Path, level: Isolation) -> None:
    code = (
        f"import sys, time; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from harness.model import Isolation\n"
        "from tests.workers import make_plan, running\n"
        f"plan = make_plan(Path({str(scratch)!r}), {ORPHAN + FOREVER!r})\n"
        f"with running(plan, Isolation({level.value!r})) as (confined, channel):\n"
        "    channel.recv(16); print(flush=True); time.sleep(60)\n"
    )
    judge = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert judge.stdout is not None
    assert judge.stdout.readline() == b"\n"
    assert _processes_in(scratch)
    judge.kill()
    judge.wait()
    judge.stdout.close()
    until = time.monotonic() + 5
    while _processes_in(scratch):
        assert time.monotonic() < until
        time.sleep(0.01)


def _processes_in(folder: Path) -> list[int]:
    """Processes whose current folder it is."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/cwd") == str(folder):
                found.append(int(name))
        except OSError:
            continue
    return found


def test_a_stopped_worker_can_be_killed(scratch: Path, level: Isolation) -> None:
    code = SAY + "say(b'up'); import signal; os.kill(os.getpid(), signal.SIGSTOP)"
    with running(make_plan(scratch, code), level) as (confined, channel):
        assert channel.recv(16) == b"up"
        assert confined.poll() is None
        confined.kill()
        assert confined.poll() == "signal SIGKILL"
        confined.kill()


def test_a_fork_bomb_is_bounded_and_ends(scratch: Path) -> None:
    require(Isolation.SANDBOX)
    code = SAY + (
        "import time\n"
        "say(b'up')\n"
        "while True:\n"
        "    try: os.fork()\n"
        "    except OSError: time.sleep(0.001)\n"
    )
    plan = make_plan(scratch, code, limits=Limits(processes=40))
    with running(plan, Isolation.SANDBOX) as (confined, channel):
        assert channel.recv(2) == b"up"
        time.sleep(0.3)
        assert 30 < tree.usage(confined.pid).threads <= 44
        assert confined.breach() is None
        started = time.monotonic()
        confined.kill()
        assert time.monotonic() - started < 3
        wait_until_closed(channel)


def test_more_processes_than_allowed_are_a_breach(scratch: Path) -> None:
    # Root that stays root is not counted by the kernel; this is what holds it.
    code = SAY + ("import signal\nfor _ in range(20):\n    if os.fork() == 0: signal.pause()\n")
    plan = make_plan(scratch, code + FOREVER, limits=Limits(processes=200))
    with running(plan, Isolation.SEPARATED) as (confined, channel):
        assert channel.recv(2) == b"up"
        assert confined.breach() is None
        confined._plan = replace(plan, limits=Limits(processes=10))
        assert "processes: 2" in (confined.breach() or "")


def test_a_flood_of_output_is_bounded(scratch: Path, level: Isolation) -> None:
    code = "import os\nfor _ in range(1000): os.write(1, b'y' * 65536)\nos.write(2, b'the reason')"
    with running(make_plan(scratch, code), level) as (confined, _):
        assert wait_for_end(confined) == "exit code 0"
    assert len(confined.log()) < Limits().log_bytes + 100
    assert confined.log().endswith("the reason")
    assert "bytes left out" in confined.log()


def test_too_much_memory_is_a_breach(scratch: Path, level: Isolation) -> None:
    code = SAY + "x = bytearray(b'x') * (96 << 20)\n" + FOREVER
    plan = make_plan(scratch, code, limits=Limits(memory_bytes=64 << 20))
    with running(plan, level) as (confined, channel):
        assert channel.recv(16) == b"up"
        assert confined.memory_bytes() > 96 << 20
        assert "host memory" in (confined.breach() or "")


def test_memory_that_no_process_is_charged_for_is_a_breach(scratch: Path, level: Isolation) -> None:
    code = (
        SAY + "import mmap\n"
        "for _ in range(8):\n"
        "    fd = os.memfd_create('hidden'); os.ftruncate(fd, 8 << 20)\n"
        "    with mmap.mmap(fd, 8 << 20) as memory: memory.write(b'z' * (8 << 20))\n" + FOREVER
    )
    plan = make_plan(scratch, code, limits=Limits(memory_bytes=48 << 20))
    with running(plan, level) as (confined, channel):
        assert channel.recv(16) == b"up"
        assert "host memory" in (confined.breach() or "")


def test_memory_shared_by_forked_children_is_counted_once(scratch: Path, level: Isolation) -> None:
    code = SAY + (
        "import signal\n"
        "x = bytearray(b'x') * (40 << 20)\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0: signal.pause()\n"
    )
    plan = make_plan(scratch, code + FOREVER, limits=Limits(memory_bytes=120 << 20))
    with running(plan, level) as (confined, channel):
        assert channel.recv(16) == b"up"
        assert confined.memory_bytes() > 120 << 20
        assert confined.breach() is None


def test_a_filled_folder_is_a_breach(scratch: Path, level: Isolation) -> None:
    code = SAY + (
        "for n in range(5):\n"
        "    os.makedirs(f'a/{n}')\n"
        "    open(f'a/{n}/x', 'wb').write(b'x' * 900_000)\n"
    )
    plan = make_plan(scratch, code + FOREVER, limits=Limits(file_bytes=4 << 20))
    with running(plan, level) as (confined, channel):
        assert channel.recv(16) == b"up"
        assert "bytes written" in (confined.breach() or "")


def test_a_folder_of_too_many_files_is_a_breach(
    scratch: Path, level: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.scratch.MAX_FILES", 20)
    code = SAY + "for n in range(30):\n    open(f'{n}', 'w').close()\n"
    with running(make_plan(scratch, code + FOREVER), level) as (confined, channel):
        assert channel.recv(16) == b"up"
        assert "more than 20 files" in (confined.breach() or "")


def test_an_honest_worker_breaches_nothing(scratch: Path, level: Isolation) -> None:
    with running(make_plan(scratch, SAY + FOREVER), level) as (confined, channel):
        assert channel.recv(16) == b"up"
        assert confined.breach() is None


def test_cpu_time_includes_children_that_have_ended(scratch: Path, level: Isolation) -> None:
    code = SAY + (
        "import time\n"
        "if os.fork() == 0:\n"
        "    while time.process_time() < 0.25: pass\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "while time.process_time() < 0.15: pass\n"
    )
    with running(make_plan(scratch, code + FOREVER), level) as (confined, channel):
        assert channel.recv(16) == b"up"
        used_ns = confined.cpu_ns()
        assert 0.37e9 < used_ns < 0.9e9
        confined.kill()
        assert confined.cpu_ns() >= used_ns


def test_hidden_folders_are_invisible_inside_readable_ones(
    scratch: Path, isolated: Isolation
) -> None:
    code = (
        "import os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try: print(open(path).read())\n"
        "    except OSError as error: print(type(error).__name__)\n"
    )
    with scratch_folder() as folder:
        folder.chmod(0o755)
        for name in ("open", "closed", "closed/inner"):
            (folder / name).mkdir()
            (folder / name / "file").write_text(name)
        (folder / "link").symlink_to(folder)
        files = [f"{folder}/{name}/file" for name in ("open", "closed", "closed/inner")]
        plan = make_plan(scratch, code, *files, f"{folder}/link/closed/file")
        plan = replace(
            plan,
            readable=(*plan.readable, folder, folder / "closed/inner"),
            hidden=(folder / "closed",),
        )
        with running(plan, isolated) as (confined, _):
            wait_for_end(confined)
    first, second, third, fourth = confined.log().split()
    assert (first, third) == ("open", "closed/inner")
    assert {second, fourth} <= {"FileNotFoundError", "PermissionError"}


def test_a_given_device_is_reached_and_another_is_not(scratch: Path, isolated: Isolation) -> None:
    # Opened for writing, which a node without its device would refuse.
    code = (
        "import os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try: os.close(os.open(path, os.O_RDWR)); print('open')\n"
        "    except OSError as error: print(type(error).__name__)\n"
        "print(os.path.exists('/sys/devices/system'), open('/proc/self/comm', 'w').write('x'))\n"
    )
    folder = Path(f"/dev/harness-test-{os.getpid()}")
    given, kept = folder / "given", folder / "kept"
    try:
        folder.mkdir(mode=0o755)
        for node in (given, kept):
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            node.chmod(0o666)
        plan = replace(make_plan(scratch, code, str(given), str(kept)), devices=(given,))
        with running(plan, isolated) as (confined, _):
            wait_for_end(confined)
    except PermissionError as error:
        pytest.skip(f"needs root that may make device nodes, stand-ins for a GPU's: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    first, second, *rest = confined.log().split()
    assert first == "open", confined.log()
    assert second in {"FileNotFoundError", "PermissionError"}
    assert rest == ["True", "1"]


def test_inside_the_system_cannot_be_filled(scratch: Path) -> None:
    require(Isolation.SANDBOX)
    code = (
        "for path in ('/x', '/dev/x', '/usr/x', '/etc/x', '/proc/x'):\n"
        "    try: open(path, 'w'); print('made', path)\n"
        "    except OSError: pass\n"
        "for path in ('/tmp/x', '/dev/shm/x'):\n"
        "    open(path, 'w').write('x')\n"
    )
    assert run(scratch, Isolation.SANDBOX, code) == ("exit code 0", "")
    assert not Path("/tmp/x").exists()


def test_a_loaded_library_may_lie_in_its_folder(scratch: Path, level: Isolation) -> None:
    subprocess.run(
        ["cc", "-shared", "-x", "c", "-", "-o", str(scratch / "built.so")],
        input=b"int seven(void) { return 7; }",
        check=True,
    )
    (scratch / "built.so").chmod(0o755)
    code = "import ctypes; print(ctypes.CDLL('./built.so').seven())"
    assert run(scratch, level, code)[1] == "7\n"


def test_a_program_that_is_missing_is_our_failure(scratch: Path, level: Isolation) -> None:
    plan = replace(make_plan(scratch, ""), argv=("/no/such/program",))
    with pytest.raises(SandboxError, match="/no/such/program"), running(plan, level):
        pass


def test_a_sandbox_without_bubblewrap_is_refused_with_its_remedy(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with (
        pytest.raises(SandboxError, match="apt-get install bubblewrap"),
        running(make_plan(scratch, ""), Isolation.SANDBOX),
    ):
        pass


def test_what_bubblewrap_says_is_in_the_error(scratch: Path) -> None:
    require(Isolation.SANDBOX)
    plan = make_plan(scratch, "")
    plan = replace(plan, readable=(*plan.readable, Path("/no/such/folder")))
    with (
        pytest.raises(SandboxError, match="bwrap: .*/no/such/folder"),
        running(plan, Isolation.SANDBOX),
    ):
        pass


def test_a_link_in_its_folder_is_not_followed_when_it_starts_again(
    scratch: Path, level: Isolation
) -> None:
    with scratch_folder() as victim:
        (scratch / "home").symlink_to(victim)
        before = victim.stat()
        run(scratch, level, "pass")
        assert (victim.stat().st_uid, victim.stat().st_mode) == (before.st_uid, before.st_mode)


def test_a_scratch_folder_that_is_a_link_is_refused(level: Isolation) -> None:
    with scratch_folder() as folder:
        (folder / "victim").mkdir(mode=0o755)
        (folder / "link").symlink_to("victim")
        with (
            pytest.raises(SandboxError, match="link"),
            running(make_plan(folder / "link", ""), level),
        ):
            pass
        assert (folder / "victim").stat().st_mode & 0o777 == 0o755


def test_hardening_makes_the_judge_unreadable_and_a_subreaper() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from harness import confine, sandbox\n"
        "assert confine.is_dumpable()\n"
        "sandbox.harden_self()\n"
        "assert not confine.is_dumpable()\n"
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0: os._exit(5)\n"
        "    os._exit(6)\n"
        "codes = {os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)}\n"
        "assert codes == {5, 6}, codes\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_a_supervisor_that_its_worker_kills_leaves_nothing_to_a_subreaper(scratch: Path) -> None:
    worker = ORPHAN + "say(b'up'); os.kill(os.getppid(), 9)"
    code = (
        f"import sys, time; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from harness import sandbox\n"
        "from harness.model import Isolation\n"
        "from tests.workers import *\n"
        "sandbox.harden_self()\n"
        f"plan = make_plan(Path({str(scratch)!r}), {worker!r})\n"
        "with running(plan, Isolation.SEPARATED) as (confined, channel):\n"
        "    channel.recv(2)\n"
        "    time.sleep(0.2)\n"
        "    confined.kill()\n"
        "    wait_until_closed(channel)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=30, check=False)
    assert done.returncode == 0
