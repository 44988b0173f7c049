"""Many runs at once against one database: every one of them is stored, whole.

`tests/test_store.py` does this with 200 rows; here whole programs do it, judges and all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.store import open_store
from tests.judging import ROOT, SUBMISSIONS, small_task

PROCESSES = 8
#: 25 gives the 200 rows of a contest's last minute, in some minutes on two cores.
EACH = int(os.environ.get("HARNESS_TEST_RUNS_EACH", "1"))


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="harness-many-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.stress
@pytest.mark.timeout(120 + 240 * EACH)
def test_every_run_of_programs_that_run_at_once_is_stored_under_an_id_of_its_own(
    folder: Path,
) -> None:
    root = small_task(folder / "task", "double")
    db = f"sqlite:///{folder}/new.db"
    source = (SUBMISSIONS / "honest.py").read_bytes()
    programs = []
    for number in range(PROCESSES):
        files = [folder / f"s{number}_{i}.py" for i in range(EACH)]
        for file in files:
            file.write_bytes(source + f"# {file.stem}\n".encode())
        options = ("--mode", "test", "--quiet", "--problem", str(root), "--db", db)
        command = [sys.executable, "-c", "from harness.cli import main; main()", "run"]
        programs.append(
            subprocess.Popen(
                [*command, *map(str, files), *options],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    complaints = [program.communicate()[1] for program in programs]

    made = f"harness: new results database {folder}/new.db\n"
    assert made in complaints and set(complaints) <= {made, ""}  # who was first, or saw none yet
    assert [program.returncode for program in programs] == [0] * PROCESSES
    with open_store(db, create=False) as store:
        rows = store.runs()
        assert len(rows) == len({row.id for row in rows}) == PROCESSES * EACH
        assert len({row.submission for row in rows}) == PROCESSES * EACH
        assert all(store.get(row.id).log == "" for row in rows)
