"""What only a server can suffer; the contract itself is test_store's, run there on both.

.ci/postgres python -m pytest -m postgres
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from harness import database, leaderboard
from harness.cli import run as run_cli
from harness.errors import StoreError
from harness.store import MissingStore, open_store
from tests.fakes import make_run

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parent.parent

MACHINE = """
import sys
from harness.store import open_store
from tests.fakes import make_run
with open_store(sys.argv[1], create=True) as store:
    sys.stdin.readline()  # both machines begin together
    for i in range(60):
        store.add(make_run(f"k{i % 7}", id=f"{sys.argv[2]}-{i}", created=i, author=sys.argv[2]))
"""


def execute(url: str, *statements: str) -> list[tuple[object, ...]]:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    try:
        with engine.begin() as connection:
            for statement in statements:
                result = connection.exec_driver_sql(statement)
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


@pytest.fixture
def url() -> Iterator[str]:
    where = os.environ["HARNESS_TEST_POSTGRES"]
    execute(where, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    yield where


def test_two_machines_that_write_at_once_both_keep_every_run(url: str) -> None:
    argv = [sys.executable, "-c", MACHINE, url]
    machines = [
        subprocess.Popen([*argv, name], cwd=ROOT, stdin=subprocess.PIPE, text=True)
        for name in ("ada", "bob")
    ]
    for machine in machines:
        assert machine.stdin is not None
        machine.stdin.write("\n")
        machine.stdin.flush()
    for machine in machines:
        machine.communicate(timeout=100)
        assert machine.returncode == 0
    with open_store(url, create=False) as store:
        assert len({row.id for row in store.runs()}) == 120
        (board,) = leaderboard.boards(store.latest_eligible(None))
    assert len(board.standings) == 14
    assert {s.run.split("-")[1] for s in board.standings} == {str(i) for i in range(53, 60)}


def test_many_processes_that_make_the_tables_at_once_make_them_once(url: str) -> None:
    failures: list[BaseException] = []

    def begin(name: str) -> None:
        try:
            with open_store(url, create=True) as store:
                store.add(make_run(id=name))
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            failures.append(error)

    threads = [threading.Thread(target=begin, args=(f"t{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert execute(url, f"SELECT count(*) FROM {database.schema.name}") == [(1,)]
    with open_store(url, create=False) as store:
        assert len(store.runs()) == 8


@pytest.mark.parametrize("score", ["'NaN'", "'Infinity'", "'-Infinity'", "0", "-1", "1e-320"])
def test_a_score_that_is_no_time_is_refused_by_the_table_or_never_ranks(
    url: str, score: str
) -> None:
    with open_store(url, create=True) as store:
        store.add(make_run("sound", id="sound"))
        store.add(make_run("broken", id="broken"))
    change = f"UPDATE harness_runs SET score_ns = {score} WHERE id = 'broken'"
    with pytest.raises(sa.exc.IntegrityError):
        execute(url, change)
    checks = execute(
        url,
        "SELECT conname FROM pg_constraint WHERE contype = 'c' "
        "AND conrelid = 'harness_runs'::regclass",
    )
    drop = [f'ALTER TABLE harness_runs DROP CONSTRAINT "{name}"' for (name,) in checks]
    try:
        execute(url, *drop, change)
    except sa.exc.DataError:
        return  # 1e-320 is no double to PostgreSQL
    with open_store(url, create=False) as store:
        assert [row.id for row in store.latest_eligible(None)] == ["sound"]
        (board,) = leaderboard.boards(store.runs())
    assert [s.run for s in board.standings] == ["sound"]


def test_an_older_schema_is_migrated_with_a_copy_of_its_tables(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url, create=True) as store:
        store.add(make_run(id="first"))

    def add_a_column(connection: sa.Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE harness_details ADD COLUMN note TEXT")

    monkeypatch.setattr(database, "MIGRATIONS", (add_a_column,))
    with pytest.raises(StoreError, match="schema 1 is older"), open_store(url, create=False):
        pass
    with open_store(url, create=True) as store:
        assert store.get("first").id == "first"
    assert execute(url, "SELECT number FROM harness_schema") == [(2,)]
    assert execute(url, "SELECT id FROM harness_runs_schema1") == [("first",)]
    assert execute(url, "SELECT run FROM harness_details_schema1") == [("first",)]
    monkeypatch.undo()
    with pytest.raises(StoreError, match="newer harness"), open_store(url, create=True):
        pass


def test_a_migration_that_fails_leaves_every_table_as_it_was(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url, create=True) as store:
        store.add(make_run(id="first"))

    def break_off(connection: sa.Connection) -> None:
        connection.exec_driver_sql("DROP TABLE harness_details")
        connection.exec_driver_sql("SELECT no_such_function()")

    monkeypatch.setattr(database, "MIGRATIONS", (break_off,))
    with pytest.raises(StoreError), open_store(url, create=True):
        pass
    monkeypatch.undo()
    with open_store(url, create=False) as store:
        assert store.get("first").id == "first"
    found = execute(url, "SELECT count(*) FROM pg_tables WHERE tablename LIKE '%schema1'")
    assert found == [(0,)]


def test_an_empty_database_is_missing_and_a_server_that_is_away_is_an_error_in_words(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingStore, match="harness run"), open_store(url, create=False):
        pass
    monkeypatch.chdir(tmp_path)
    away = "postgresql://me:secret@/runs?host=/nonexistent"
    assert run_cli(["leaderboard", "--db", away]) == 3
    said = capsys.readouterr().err
    assert "secret" not in said and "/nonexistent" in said and "Traceback" not in said


def test_the_command_shows_a_board_of_the_server(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url, create=True) as store:
        store.add(make_run("quick", id="quick"))
    monkeypatch.chdir(tmp_path)
    assert run_cli(["leaderboard", "--db", url]) == 0
    assert "quick is the only entry" in capsys.readouterr().out
    page = tmp_path / "board.html"
    assert run_cli(["leaderboard", "--db", url, "--html", str(page)]) == 0
    assert "quick" in page.read_text(encoding="utf-8")
