"""The program as people call it: exit codes, one line on errors, one document with --json."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from harness import bundle, cli, codec, pool, sqlite_file
from harness.errors import UsageError
from harness.model import Mode, Run
from harness.sources import read_submission
from harness.store import Store, open_store
from harness.task import load
from harness.timing import CPU_BUDGET, CUDA_BUDGET
from tests.fakes import CPU, make_run
from tests.judging import ROOT, SUBMISSIONS, small_task
from tests.sampled import sampled_run
from tests.workers import require_rank

HONEST = SUBMISSIONS / "honest.py"
DOUBLE = ROOT / "tests/problems/double"


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str


Harness = Callable[..., Said]


@pytest.fixture
def harness(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Harness:
    monkeypatch.delenv("HARNESS_DB", raising=False)
    monkeypatch.delenv("HARNESS_DEBUG", raising=False)

    def call(*arguments: str) -> Said:
        """One command line, in this process: for what ends before a judge starts."""
        code = cli.run(list(arguments))
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return call


@pytest.fixture
def folder() -> Iterator[Path]:
    """A task of its own to write beside; not below pytest's folders, closed to other users."""
    path = Path(tempfile.mkdtemp(prefix="harness-cli-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def refused(said: Said, code: int, words: str) -> None:
    """It ended with `code` and one or two lines, which hold `words` and no traceback."""
    assert (said.code, said.out) == (code, "")
    assert words in said.err
    assert "Traceback" not in said.err
    assert said.err.startswith("harness: ")
    assert 1 <= len(said.err.strip().splitlines()) <= 2


# ---- usage: exit code 2 ----


def test_a_missing_file_a_folder_and_a_binary_are_refused_by_name(
    harness: Harness, tmp_path: Path
) -> None:
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\0\0")
    db = f"sqlite:///{tmp_path}/results/some.db"
    common = ("--problem", str(DOUBLE), "--db", db)
    refused(harness("run", "missing.py", *common), 2, "missing.py: there is no such file")
    refused(harness("run", str(tmp_path), *common), 2, "folder")
    refused(harness("run", str(tmp_path / "binary.py"), *common), 2, "NUL bytes")
    assert not (tmp_path / "results").exists()


def test_outside_of_a_task_there_is_no_board_and_not_an_empty_one(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(harness("leaderboard"), 2, f"no shapes.yaml in {tmp_path} or above")
    elsewhere = harness("leaderboard", "--db", f"sqlite:///{tmp_path}/none.db")
    refused(elsewhere, 2, f"{tmp_path}/none.db")


def test_one_bad_file_among_good_ones_is_found_before_any_is_judged(harness: Harness) -> None:
    said = harness("run", str(HONEST), "missing.py", "--problem", str(DOUBLE), "--no-store")
    refused(said, 2, "missing.py")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", str(HONEST), "--no-such-option"), "No such option"),
        (("run",), "Missing argument"),
        (("rnu", str(HONEST)), "No such command 'rnu'. Did you mean 'run'?"),
        (("leadrboard",), "Did you mean 'leaderboard'?"),
        (("xyzzy",), "No such command 'xyzzy'."),
        (("run", str(HONEST), "--mode", "fast"), "'fast' is not one of"),
        (("run", str(HONEST), "--processes", "0"), "processes"),
        (("run", str(HONEST), "--processes", "-5"), "processes"),
        (("run", str(HONEST), "--budget", "0"), "budget"),
        (("run", str(HONEST), "--budget", "nan"), "budget"),
        (("run", str(HONEST), "--seed", "-1"), "seed"),
        (("run", str(HONEST), "--timeout", "soon"), "'soon' is not a valid float"),
        (("run", str(HONEST), "--problem", str(DOUBLE), "--shape", "m=1"), "--shape m=1"),
        (("run", str(HONEST), "--problem", str(DOUBLE), "--shape", "n=-1"), "n"),
        (("show", "no-such-run", "--problem", str(DOUBLE)), "no-such-run"),
        (("leaderboard", "--limit", "0"), "limit"),
        (("leaderboard", "--db", "mysql://x"), "mysql"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    harness: Harness, arguments: tuple[str, ...], words: str
) -> None:
    refused(harness(*arguments), 2, words)


@pytest.mark.parametrize("command", ["run", "gate", "doctor"])
def test_where_no_judge_can_run_that_is_said_and_results_can_be_read(
    harness: Harness, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    refused(
        harness(command, str(HONEST)), 3, f"`harness {command}` needs Linux, and this is darwin"
    )
    assert harness("leaderboard", "--help").code == 0
    assert harness("--help").code == 0


def test_text_in_a_file_name_is_shown_and_not_interpreted(harness: Harness) -> None:
    said = harness("run", "[bold]x[/].py", "--problem", str(DOUBLE), "--no-store")
    refused(said, 2, "[bold]x[/].py")
    said = harness("run", "\x1b[31mx\udc80.py", "--problem", str(DOUBLE), "--no-store")
    assert said.code == 2 and "Traceback" not in said.err


def test_a_broken_shapes_file_is_named_with_its_line(harness: Harness, folder: Path) -> None:
    root = small_task(folder / "task", "double")
    text = (root / "shapes.yaml").read_text()
    (root / "shapes.yaml").write_text(text.replace("rtol: 1.0e-6", "rtol: 1e-6"))
    said = harness("run", str(HONEST), "--problem", str(root), "--no-store")
    refused(said, 2, f"{root}/shapes.yaml:4")
    assert "1.0e-6" in said.err


@pytest.mark.parametrize(("command", "whole"), [("run", "a run"), ("compare", "each process")])
def test_the_help_of_budget_says_what_it_is_for_and_what_it_is_otherwise(
    harness: Harness, command: str, whole: str
) -> None:
    (seconds,) = {budget.time_ns / 1e9 for budget in (CPU_BUDGET, CUDA_BUDGET)}
    said = " ".join(harness(command, "--help").out.split())
    assert (
        f"--budget S Seconds of sampling for all shapes of {whole} together ({seconds:g})" in said
    )


# ---- harness and machine: exit code 3 ----


def test_a_results_folder_that_cannot_be_written_stops_a_run_before_it_begins(
    harness: Harness, folder: Path
) -> None:
    root = small_task(folder / "task", "double")
    (root / "results").write_text("a file in the folder's place")
    refused(harness("run", str(HONEST), "--problem", str(root)), 3, f"{root}/results")


def test_a_corrupt_database_is_refused_and_left_as_it_is(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xaa" * 8192)
    before = path.read_bytes()
    for command in (("run", str(HONEST)), ("leaderboard",), ("show", "abc")):
        said = harness(*command, "--problem", str(DOUBLE), "--db", f"sqlite:///{path}")
        refused(said, 3, str(path))
    assert path.read_bytes() == before


@pytest.mark.timeout(300)
def test_a_run_that_a_locked_database_does_not_take_is_kept_and_can_be_imported(
    harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, path = small_task(folder / "task", "double"), folder / "some.db"
    (root / "results").mkdir()
    db = ("--problem", str(root), "--db", f"sqlite:///{path}")
    with open_store(f"sqlite:///{path}", create=True) as store:
        store.add(make_run(id="first"))
    monkeypatch.setattr("harness.store.open_store", partial(open_store, busy_ns=200_000_000))
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")

    nan = SUBMISSIONS / "nan_in_last_element.py"
    said = harness("run", str(nan), "--mode", "test", "--quiet", *db)

    blocker.execute("ROLLBACK")
    blocker.close()
    refused(said, 3, f"{path}: database is locked")
    (kept,) = (root / "results").iterdir()
    assert f"the run (nonfinite) is kept: harness import {kept}" in said.err
    assert harness("import", str(kept), *db).code == 0
    with open_store(f"sqlite:///{path}", create=False) as store:
        assert sorted(run.submission for run in store.runs()) == ["fast", "nan_in_last_element"]


def test_a_new_database_is_told_where_somebody_named_it(
    harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typing error in --db made another database, without a word."""
    root = small_task(folder / "task", "double")
    monkeypatch.setattr("harness.commands.run.judge", lambda *_, **__: make_run(id=token_hex(6)))
    run = ("run", str(HONEST), "--problem", str(root), "--quiet", "--json")
    first, second = (harness(*run, "--db", f"sqlite:///{folder}/resluts/a.db") for _ in range(2))
    assert first.err == f"harness: new results database {folder}/resluts/a.db\n"
    assert len(json.loads(first.out)["runs"]) == 1
    assert second.err == harness(*run).err == ""  # one that is there, and the task's own

    made = bundle.dumps(bundle.make([sampled_run()], with_source=True))
    (folder / "bundle.json").write_bytes(made)
    import_ = ("import", str(folder / "bundle.json"), "--problem", str(root))
    said = harness(*import_, "--db", f"sqlite:///{folder}/b.db")
    assert said.err == f"harness: new results database {folder}/b.db\n"


@pytest.mark.parametrize("command", ["run", "import"])
def test_a_database_that_another_program_holds_is_waited_for_once(
    harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It was four times, a minute each: to see whether it is there, and to open it."""
    root, path = small_task(folder / "task", "double"), folder / "some.db"
    made = bundle.dumps(bundle.make([sampled_run()], with_source=True))
    (folder / "bundle.json").write_bytes(made)
    file = {"run": HONEST, "import": folder / "bundle.json"}[command]
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE harness_schema (number INTEGER)")  # with a rollback journal
    holder.execute("BEGIN EXCLUSIVE")
    opened: list[str] = []
    connect = sqlite_file._connect

    def at_once(name: str, busy_ns: int, *, uri: bool = False) -> sqlite3.Connection:
        opened.append(name)
        return connect(name, 0, uri=uri)

    monkeypatch.setattr(sqlite_file, "_connect", at_once)
    said = harness(command, str(file), "--problem", str(root), "--db", f"sqlite:///{path}")
    holder.close()
    refused(said, 3, f"{path}: database is locked: another process holds it")
    assert len(opened) == 1


def ranked_run_of_mine() -> Run:
    """A run of `mine` that stands on the board of the task `double`."""
    task = load(DOUBLE)
    return sampled_run(
        "mine", id="aaaa", created=1, times_us=(20.0, 40.0), shapes=task.ranked,
        task=task.name, digest=task.digest,
    )  # fmt: skip


def test_show_by_name_says_which_run_holds_the_standing_where_the_latest_does_not(
    harness: Harness, folder: Path
) -> None:
    db, ranked = f"sqlite:///{folder}/some.db", ranked_run_of_mine()
    quick = replace(ranked, id="bbbb", created_ns=ranked.created_ns + 1, mode=Mode.TEST)
    common = ("--problem", str(DOUBLE), "--db", db)
    line = "its standing is run aaaa: harness show aaaa"
    with open_store(db, create=True) as store:
        store.add(ranked)
        assert line not in harness("show", "mine", *common).out
        store.add(quick)
    assert harness("show", "mine", *common).out.splitlines()[-1] == line
    assert line not in harness("show", "bbbb", *common).out  # asked for by its id


def test_show_by_name_says_which_run_holds_the_standing_on_another_device(
    harness: Harness, folder: Path
) -> None:
    db, ranked = f"sqlite:///{folder}/some.db", ranked_run_of_mine()
    quick = replace(ranked, id="bbbb", created_ns=ranked.created_ns + 1, mode=Mode.TEST, device=CPU)
    with open_store(db, create=True) as store:
        store.add(ranked, quick)
    said = harness("show", "mine", "--problem", str(DOUBLE), "--db", db).out.splitlines()[-1]
    assert said == "its standing on NVIDIA H200 is run aaaa: harness show aaaa"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_a_signal_meets_as_it_waits_for_the_database_is_kept(
    harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root, path = small_task(folder / "task", "double"), folder / "some.db"
    (root / "results").mkdir()
    # Unmended it must fail, not end pytest; a shell's background jobs ignore SIGINT.
    old = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: None),
    }

    def waits(*_: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(10)

    monkeypatch.setattr("harness.commands.run.judge", lambda *_, **__: make_run())
    monkeypatch.setattr(Store, "add", waits)
    said = harness("run", str(HONEST), "--problem", str(root), "--db", f"sqlite:///{path}")

    for which, handler in old.items():
        signal.signal(which, handler)
    (kept,) = (root / "results").iterdir()
    assert said.code == 130
    assert f"not stored yet: the run (passed) is kept: harness import {kept}\n" in said.err
    assert bundle.loads(kept.read_bytes(), "it").runs[0].id == make_run().id


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A judge that has a result at once; unmended, a signal must fail a test and not end pytest."""
    old = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: None),
    }
    result = json.dumps({"event": "result", "value": codec.encode(make_run("mine"))})
    judge = partial(
        subprocess.Popen,
        [sys.executable, "-c", f"print({result!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    monkeypatch.setattr(pool, "_start_judge", judge)
    yield
    for number, handler in old.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
def test_a_run_that_a_signal_meets_as_its_judge_ends_is_stored(
    harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch, numbers: list[int]
) -> None:
    root, db = small_task(folder / "task", "double"), f"sqlite:///{folder}/some.db"
    end = pool._end

    def is_met(*judge: Any) -> None:
        for number in numbers:
            os.kill(os.getpid(), number)
        end(*judge)

    monkeypatch.setattr(pool, "_end", is_met)
    run = ("run", str(HONEST), str(SUBMISSIONS / "raises.py"), "--quiet", "--problem")
    said = harness(*run, str(root), "--db", db)
    assert (said.code, said.out) == (130, "")
    assert said.err.splitlines()[1:] == ["", "harness: interrupted; runs that had ended are kept"]
    with open_store(db, create=False) as store:
        assert [row.submission for row in store.runs()] == ["mine"]  # and no other was begun


@pytest.mark.usefixtures("signals")
def test_a_signal_says_that_runs_are_kept_only_where_some_are(
    harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, end = small_task(folder / "task", "double"), pool._end
    run = ("run", str(HONEST), "--quiet", "--mode", "test", "--problem", str(root))

    def is_met(*judge: Any) -> None:
        end(*judge)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(pool, "_end", is_met)
    assert harness(*run, "--no-store").err == "\nharness: interrupted\n"
    monkeypatch.setattr(pool, "run_job", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert harness(*run).err == "\nharness: interrupted\n"


@pytest.mark.usefixtures("signals")
def test_a_signal_that_waited_does_not_keep_another_from_ending_the_wait_for_the_database(
    harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, end = small_task(folder / "task", "double"), pool._end

    def is_met(*judge: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        end(*judge)

    def waits(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(pool, "_end", is_met)
    monkeypatch.setattr(Store, "add", waits)
    said = harness("run", str(HONEST), "--quiet", "--problem", str(root))
    kept = next(root.glob("results/unstored-*.json"))
    assert said.code == 130 and f"is kept: harness import {kept}\n" in said.err
    assert said.err.endswith("harness: interrupted\n")


@pytest.mark.timeout(300)
def test_a_judge_that_breaks_is_one_line_and_a_traceback_only_for_who_asks(
    harness: Harness, folder: Path
) -> None:
    root = small_task(folder / "task", "double")
    broken = "def ref_kernel(data):\n    raise RuntimeError('first line\\nthe reason')\n"
    (root / "reference/__init__.py").write_text(broken)
    common = ("--problem", str(root), "--no-store", "--quiet", "--mode", "test")
    refused(harness("run", str(HONEST), *common), 3, "the reason")
    said = harness("--debug", "run", str(HONEST), *common)
    assert said.code == 3 and "Traceback" in said.err and "first line" in said.err


# ---- new ----


@pytest.mark.parametrize(
    "name",
    ["../x", "/tmp/x", "..\\x", "a/b", ".hidden", "x\0", "x" * 300, "", "x.py", "-x", "1x", "ж"],
)
def test_new_writes_nothing_under_a_name_that_is_no_name(
    harness: Harness, folder: Path, name: str
) -> None:
    root = small_task(folder / "task", "nvfp4")
    before = sorted(folder.rglob("*"))
    said = harness("new", "--problem", str(root), "--", name)
    assert said.code == 2 and said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    assert sorted(folder.rglob("*")) == before


def test_new_never_overwrites_and_does_not_follow_a_planted_link(
    harness: Harness, folder: Path
) -> None:
    root = small_task(folder / "task", "nvfp4")
    said = harness("new", "mine", "--problem", str(root))
    path = root / "submissions/mine.py"
    assert said.code == 0 and str(path) in said.out
    path.write_text("# edited\n")
    refused(harness("new", "mine", "--kind", "cuda", "--problem", str(root)), 2, "exists already")
    assert path.read_text() == "# edited\n"
    (root / "submissions/link.py").symlink_to(folder / "elsewhere.py")
    refused(harness("new", "link", "--problem", str(root)), 2, "exists already")
    assert not (folder / "elsewhere.py").exists()


def test_new_has_no_starting_point_for_another_task(harness: Harness, folder: Path) -> None:
    root = small_task(folder / "task", "double")
    refused(harness("new", "mine", "--problem", str(root)), 2, "this task is double")


# ---- whole runs, each in a process of its own ----


def program(
    *arguments: str, cwd: Path = ROOT, environment: dict[str, str] | None = None, umask: int = -1
) -> subprocess.CompletedProcess[bytes]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HARNESS_")}
    code = "import sys; from harness.cli import main; sys.argv[0] = 'harness'; main()"
    return subprocess.run(
        # -P: a program that pip installed does not look for modules in the current folder.
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=cwd,
        env=environment if environment is not None else kept,
        capture_output=True,
        timeout=300,
        umask=umask,
    )


SIBLING = "import os\nopen({marker!r}, 'w').close()\nos._exit(9)\n"


@pytest.mark.timeout(300)
def test_a_batch_is_judged_and_stored_file_by_file_whatever_one_of_them_does(folder: Path) -> None:
    """B47, B50, B53, B79: a crash between two honest files that are called like libraries, beside
    siblings that would replace parts of the harness."""
    root = small_task(folder / "task", "double")
    batch = folder / "batch"
    batch.mkdir()
    shutil.copy(HONEST, batch / "random.py")
    shutil.copy(SUBMISSIONS / "segfaults.py", batch / "crash.py")
    shutil.copy(HONEST, batch / "torch.py")
    marker = str(folder / "imported")
    for name in ("reference", "task", "yaml", "sitecustomize", "conftest", "harness", "click"):
        (batch / f"{name}.py").write_text(SIBLING.format(marker=marker))
    db = f"sqlite:///{folder}/some.db"

    done = program(
        "run", "random.py", "crash.py", "torch.py", "--mode", "test", "--json",
        "--problem", str(root), "--db", db, "--author", "Ł☃",
        cwd=batch,
    )  # fmt: skip

    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert [(r["submission"]["name"], r["verdict"]) for r in document["runs"]] == [
        ("random", "passed"), ("crash", "crashed"), ("torch", "passed"),
    ]  # fmt: skip
    assert {r["device"]["kind"] for r in document["runs"]} == {"cpu"}
    assert {r["clock"] for r in document["runs"]} == {"host"}
    assert b"SIGSEGV" in done.stdout
    assert b"Traceback" not in done.stderr and b"\x1b" not in done.stdout + done.stderr
    assert not Path(marker).exists()
    with open_store(db, create=False) as store:
        assert [(s.submission, s.author) for s in store.runs(mode=Mode.TEST)] == [
            ("torch", "Ł☃"), ("crash", "Ł☃"), ("random", "Ł☃"),
        ]  # fmt: skip


@pytest.mark.timeout(300)
def test_several_runs_end_with_a_count_of_them_and_with_who_leads(folder: Path) -> None:
    """The last file's sentence stood there alone."""
    require_rank()
    root = small_task(folder / "task", "double")
    shutil.copy(HONEST, folder / "second.py")
    files = [str(HONEST), str(folder / "second.py"), str(SUBMISSIONS / "raises.py")]
    common = ("--problem", str(root), "--quiet", "--budget", "0.2", "--device", "cpu")
    done = program("run", *files, *common, "--db", f"sqlite:///{folder}/some.db")
    assert done.returncode == 1
    *_, before, count, board = done.stdout.decode().splitlines()
    assert (before, count) == ("", "2 passed, 1 failed")
    assert board.endswith(("as long.", "is within noise."))
    done = program("run", *files[1:], *common, "--no-store", "--mode", "test")
    assert done.stdout.decode().splitlines()[-1] == "1 passed, 1 failed"


def test_which_file_was_meant_is_guessed_at(
    harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "submissions").mkdir()
    (folder / "submissions" / "mine.py").touch()
    monkeypatch.chdir(folder)
    for given in ("submissions/mine", "submissions/mien.py", "mine.py", "mine"):
        said = harness("run", given, "--problem", str(DOUBLE), "--no-store")
        guess = "did you mean submissions/mine.py?"
        refused(said, 2, f"{given}: there is no such file; {guess}")
    said = harness("run", "submissions/other", "--problem", str(DOUBLE), "--no-store")
    refused(said, 2, "submissions/other: there is no such file\n")


@pytest.mark.timeout(300)
def test_a_run_and_its_board_come_through_an_ascii_locale_and_an_empty_environment(
    folder: Path,
) -> None:
    """B19, B62, B68: what cron and CI have."""
    require_rank()
    root = small_task(folder / "task", "double")
    bare = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PATH": "/usr/bin"}
    bare["HOME"] = str(folder)
    common = ("--problem", str(root), "--db", f"sqlite:///{folder}/some.db")

    done = program(
        "run", str(HONEST), *common, "--author", "Ł☃", "--budget", "0.2", environment=bare
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(b"honest passed")  # a single run is not counted
    (done.stdout + done.stderr).decode("ascii")
    assert b"Traceback" not in done.stderr and b"\x1b" not in done.stdout + done.stderr
    board = program("leaderboard", *common, environment=bare)
    assert board.returncode == 0, board.stderr
    assert b"honest" in board.stdout and board.stdout.decode("ascii")


@pytest.mark.timeout(300)
def test_who_keeps_files_to_oneself_is_judged_as_anybody(folder: Path) -> None:
    """Root's worker is another user, and could read neither what root wrote under a umask of 077
    nor a copy of a file of mode 0600: honest files were import errors."""
    root = small_task(folder / "task", "double")
    for file in (root / "task").iterdir():
        file.chmod(0o600)
    arguments = ("--problem", str(root), "--no-store", "--quiet", "--mode", "test")
    done = program("run", str(HONEST), *arguments, umask=0o077)
    assert done.stdout.decode().endswith("honest passed\n"), done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("device", ["cuda", "cuda:7", "tpu"])
def test_a_device_that_is_not_there_is_a_usage_error(folder: Path, device: str) -> None:
    """B53."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    root = small_task(folder / "task", "double")
    done = program(
        "run", str(HONEST), "--device", device, "--no-store", "--quiet", "--problem", str(root),
        environment=environment,
    )  # fmt: skip
    said = Said(done.returncode, done.stdout.decode(), done.stderr.decode())
    refused(said, 2, f"--device {device}")


@pytest.mark.parametrize("arguments", [["--help"], ["leaderboard", "--json"]])
def test_a_reader_that_goes_away_changes_no_exit_code(arguments: list[str]) -> None:
    script = f"{sys.executable} -m harness {' '.join(arguments)} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_behind_the_output_is_one_line() -> None:
    command = [sys.executable, "-m", "harness", "--help"]
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("harness: the output cannot be written (No space left")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["leaderboard", "run x.py", "gate x.py"])
def test_in_a_folder_that_is_gone_that_is_said(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.run(command.split()) == 2
    said = "harness: the current folder does not exist any more; cd to one that does\n"
    assert capsys.readouterr().err == said


LONG = 300 * "x"


@pytest.mark.parametrize(
    "command",
    [
        f"compare {LONG} {LONG}",
        f"gate {LONG} --problem={DOUBLE}",
        f"gate {HONEST} --problem={DOUBLE} --cache=/tmp/{LONG}",
        f"gate {HONEST} --problem={DOUBLE} --no-cache --baseline {LONG}",
        f"run --problem {LONG} {HONEST}",
        f"leaderboard --problem {LONG}",
    ],
    ids=range(6),
)
def test_a_name_that_no_system_takes_is_named_with_the_cause(
    command: str, harness: Harness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    said = harness(*command.split())
    refused(said, 2, LONG)
    assert "File name too long" in said.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (PermissionError(errno.EACCES, "Denied", "x.py"), 2, "x.py: Denied"),
        (PermissionError(errno.EACCES, "Denied", f"{ROOT}/task/task.py"), 2, "task.py: Denied"),
        (PermissionError(errno.EACCES, "Denied", f"{ROOT}task/task.py"), 3, "task.py: Denied"),
        (PermissionError(errno.EACCES, "Denied", "/dev/nvidia0"), 3, "/dev/nvidia0: Denied"),
        (OSError(errno.EMFILE, "Too many", "x.py"), 3, "x.py: Too many"),
        (OSError(errno.ENOSPC, "Full", "x.py"), 3, "x.py: Full"),
        (FileNotFoundError(errno.ENOENT, "None", "bwrap"), 3, "bwrap: None"),
        (OSError(errno.EACCES, "Denied", 5), 3, "5: Denied"),
        (OSError(errno.ENOSPC, "Full"), 3, "the output cannot be written (Full)"),
        (OSError("odd"), 3, "the output cannot be written (odd)"),
    ],
    ids=str,
)
def test_what_the_machine_cannot_do_is_no_usage_error(
    error: OSError, code: int, words: str, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a path that the command line names is its user's."""

    def raises(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli.main_group, "main", raises)
    refused(harness("run", "x.py", f"--problem={ROOT}"), code, f"{words}\n")


def test_a_closed_output_is_no_crash() -> None:
    script = f"{sys.executable} -m harness --help >&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["2>/dev/full", "2>&-"])
def test_help_that_nobody_can_read_changes_no_exit_code(closed: str, tmp_path: Path) -> None:
    for arguments, code in (("--help", 0), (f"run {tmp_path}/missing.py", 2)):
        script = f"{sys.executable} -m harness {arguments} {closed}"
        done = subprocess.run(["bash", "-c", script], stdout=subprocess.DEVNULL, check=False)
        assert done.returncode == code


@pytest.mark.parametrize("closed", ["2>/dev/full", "2>&-"])
def test_a_run_is_stored_though_its_progress_cannot_be_shown(folder: Path, closed: str) -> None:
    root = small_task(folder / "task", "double")
    db = f"sqlite:///{folder}/some.db"
    command = f"{sys.executable} -m harness run {HONEST} --problem {root} --db {db} --mode test"
    done = subprocess.run(["bash", "-c", f"{command} {closed}"], capture_output=True, check=False)
    assert done.returncode == 0
    with open_store(db, create=False) as store:
        assert len(store.runs()) == 1


def test_bytes_that_are_no_text_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    done = program("leaderboard", "--device", "n\udcff")
    assert done.returncode == 2
    assert done.stderr == (
        b"harness: 'n\\udcff': is no UTF-8; rename the file, or write the name as text\n"
    )


def test_what_is_said_of_other_peoples_names_cannot_command_a_terminal(
    folder: Path,
) -> None:
    done = program("run", str(folder / "x\x1b]0;pwn\x07\u202e.py"))
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr and b"\x07" not in done.stderr
    assert "\u202e".encode() not in done.stderr


def test_nohup_goes_on_being_ignored() -> None:
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from harness.interrupts import interruptible\n"
        "with interruptible(): signal.raise_signal(signal.SIGHUP)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_too_long_to_keep_apart_is_refused(folder: Path) -> None:
    path = folder / f"{'k' * 101}.py"
    path.write_text("def custom_kernel(data): ...\n")
    with pytest.raises(UsageError, match="longer than 100 characters"):
        read_submission(path, None)


def test_without_arguments_there_is_the_help_and_nothing_around_it() -> None:
    done = program()
    assert done.returncode == 2
    assert done.stderr.startswith(b"Usage: harness ")
    assert b"see `harness --help`" not in done.stderr


def test_a_misspelt_file_is_looked_for_among_the_runs_and_both_are_said(folder: Path) -> None:
    root, db = small_task(folder / "task", "double"), f"sqlite:///{folder}/some.db"
    with open_store(db, create=True) as store:
        store.add(make_run())
    done = program("compare", str(HONEST), "nope", "--problem", str(root), "--db", db)
    assert done.returncode == 2
    assert done.stderr.startswith(b"harness: nope: there is no such file, and ")
    assert b"no run 'nope'" in done.stderr
