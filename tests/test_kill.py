"""`harness run` on 100 submissions, killed in the middle with SIGKILL: what the store holds."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import bundle, leaderboard
from harness.store import open_store

pytestmark = pytest.mark.stress
ROOT = Path(__file__).parent.parent
DOUBLE = ROOT / "tests" / "problems" / "double"

# The command as it is, but for the judge: a run is made up in a millisecond.  Each is announced on
# a line of its own after the command has stored it.
PROGRAM = """
import sys
from pathlib import Path
from harness import pool
from harness.store import Store
from harness.task import load
from tests.sampled import sampled_run

task = load(Path(sys.argv[1]))
made = []

def judge(job, report):
    times = [20.0 + len(made)] * len(task.ranked)
    run = sampled_run(job.submission.name, id=f"{job.submission.name}-{sys.argv[3]}",
                      seed=len(made), times_us=times, shapes=task.ranked, task=task.name,
                      digest=task.digest, created=1000 * int(sys.argv[3]) + len(made))
    made.append(run.id)
    return run

add = Store.add
def announce(store, run):
    add(store, run)
    print("stored", run.id, flush=True)

pool.run_job, Store.add = judge, announce
from harness.cli import run
sys.exit(run(["run", "--problem", sys.argv[1], "--db", sys.argv[2], "--quiet", *sys.argv[4:]]))
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A hundred submissions."""
    made = [tmp_path / f"s{i:03}.py" for i in range(100)]
    for i, path in enumerate(made):
        path.write_text(f"custom_kernel = {i}\n")
    return [str(path) for path in made]


def start(url: str, attempt: int, files: list[str]) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", PROGRAM, str(DOUBLE), url, str(attempt), *files]
    return subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def announced(lines: list[str]) -> set[str]:
    return {words[1] for line in lines if (words := line.split())[:1] == ["stored"]}


def test_killed_anywhere_it_leaves_every_finished_run_whole_and_no_half_of_another(
    files: list[str], tmp_path: Path
) -> None:
    url, expected = f"sqlite:///{tmp_path / 'harness.db'}", set[str]()
    # Killed soon, in the middle, late; the pause moves the moment within a run's storing.
    for attempt, (count, pause) in enumerate([(3, 0.0), (25, 0.004), (50, 0.011)]):
        process = start(url, attempt, files)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if len(announced(lines)) >= count:
                break
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        rest, said = process.communicate()
        whole = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        done = announced(lines + whole)
        assert len(done) >= count, said
        expected |= done
        with open_store(url, create=False) as store:
            rows = store.runs()
            found = {row.id for row in rows}
            # Stored, but killed before it could say so: at most one an attempt.
            assert expected <= found and len(found - expected) <= attempt + 1
            for row in rows:
                run = store.get(row.id)
                assert leaderboard.summarise(run) == row and bundle.problems(run) == ()
            expected = found


def test_after_a_kill_the_next_command_finishes_the_job_and_the_board_is_whole(
    files: list[str], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'harness.db'}"
    process = start(url, 0, files)
    assert process.stdout is not None
    for _ in itertools.takewhile(lambda line: "s040" not in line, process.stdout):
        pass
    process.kill()
    process.communicate()
    process = start(url, 1, files)
    assert "s099-1" in process.communicate()[0]
    assert process.returncode == 0
    argv = [sys.executable, "-c", "from harness.cli import main; main()", "leaderboard", "--json"]
    shown = subprocess.run([*argv, "--db", url], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
                           capture_output=True, check=True)  # fmt: skip
    (board,) = json.loads(shown.stdout)["boards"]
    assert len(board["standings"]) == 100
    assert {s["run"][-2:] for s in board["standings"]} == {"-1"}
