"""One contract for every database, and what only a file on a disk can suffer."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from harness import database, leaderboard, sqlite_file
from harness.errors import StoreError, UsageError
from harness.model import CaseKind, Doubt, Mode, Run, Verdict
from harness.store import MissingStore, Store, open_store
from tests.fakes import CPU, SHAPES, make_failure, make_run, make_task

ROOT = Path(__file__).parent.parent


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'results' / 'harness.db'}"
    where = os.environ["HARNESS_TEST_POSTGRES"]
    engine = sa.create_engine(sa.make_url(where).set(drivername="postgresql+psycopg"))
    database.metadata.drop_all(engine)
    engine.dispose()
    return where


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url, create=True) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A SQLite file that holds one run and is closed."""
    file = tmp_path / "harness.db"
    with open_store(f"sqlite:///{file}", create=True) as opened:
        opened.add(make_run(id="first"))
    return file


def names(store: Store) -> list[str]:
    return sorted(row.submission for row in store.latest_eligible(None))


# The contract


def test_a_run_comes_back_as_it_went_in_with_every_sample_and_its_log(store: Store) -> None:
    run = make_run(
        log="tail \x1b[31m\udcff\0 of a log",
        verdict=Verdict.WRONG_ANSWER,
        message="\0 bad \ud800",
        failures=[make_failure(SHAPES[0], Verdict.WRONG_ANSWER, "7 of 7168 elements")],
    )
    store.add(run)
    assert store.get(run.id) == run


def test_what_is_stored_outlives_the_process_that_stored_it(url: str) -> None:
    with open_store(url, create=True) as first:
        first.add(make_run(id="kept"))
    with open_store(url, create=True) as again:
        again.add(make_run("other", id="more"))
    with open_store(url, create=False) as reader:
        assert reader.get("kept").id == "kept"
        assert names(reader) == ["fast", "other"]


def test_a_unique_prefix_finds_a_run_and_an_ambiguous_or_unknown_one_is_an_error(
    store: Store,
) -> None:
    for id in ("ab1", "ab2", "ab", "c%d", "cxd"):
        store.add(make_run(id=id))
    assert store.get("ab1").id == "ab1"
    assert store.get("ab").id == "ab"  # exact wins over being a prefix
    assert store.get("c%").id == "c%d"  # and is no pattern
    store.add(make_run("ab2", id="named"))
    store.add(make_run("c", id="short"))
    assert store.get("ab2").id == "ab2"  # an id wins over a name
    assert store.get("c").id == "short"  # and a name over the beginning of one
    for key in ("a", "zz", "", "c_d"):
        with pytest.raises(UsageError):
            store.get(key)


def test_the_same_id_twice_is_refused_and_changes_nothing(store: Store) -> None:
    store.add(make_run("one", id="same"))
    with pytest.raises(StoreError, match="stored already"):
        store.add(make_run("two", id="same"))
    assert store.get("same").submission.name == "one"
    store.add(make_run("three", id="next"))
    assert len(store.runs()) == 2


def test_of_several_runs_all_are_stored_or_none(store: Store) -> None:
    store.add(make_run(id="a"), make_run(id="b"))
    with pytest.raises(StoreError, match="run b is stored already"):
        store.add(make_run(id="c"), make_run(id="b"))
    store.add()
    assert {row.id for row in store.runs()} == {"a", "b"}


def test_runs_are_listed_newest_first_and_filtered(store: Store) -> None:
    store.add(make_run("old", id="1", created=1))
    store.add(make_run("new", id="2", created=2, mode=Mode.TEST))
    store.add(make_run("else", id="3", created=3, task="another"))
    assert [row.id for row in store.runs()] == ["3", "2", "1"]
    assert [row.id for row in store.runs(limit=2)] == ["3", "2"]
    assert [row.id for row in store.runs(mode=Mode.TEST)] == ["2"]
    assert [row.id for row in store.runs(task="another")] == ["3"]
    assert store.runs(device="Cray-1") == ()


def test_a_summary_read_back_is_the_summary_of_the_run(store: Store) -> None:
    run = make_run(doubts=[Doubt.NOISY], failures=[make_failure(SHAPES[0], Verdict.CRASHED, "x")])
    store.add(run)
    assert store.runs() == (leaderboard.summarise(run),)


def test_the_latest_eligible_run_stands_not_the_best_and_not_a_later_failure(store: Store) -> None:
    store.add(make_run("k", id="best", created=1, times_us=(1, 1, 1)))
    store.add(make_run("k", id="latest", created=2, times_us=(2, 2, 2)))
    other = "cd" * 32  # a later text of the same name
    store.add(make_run("k", id="failed", created=3, verdict=Verdict.CRASHED, sha256=other))
    store.add(make_run("k", id="unranked", created=4, mode=Mode.BENCHMARK))
    store.add(make_run("k", id="custom", created=5, custom_shapes=True))
    store.add(make_run("k", id="emulated", created=6, doubts=[Doubt.EMULATED], sha256=other))
    store.add(
        make_run(
            "k", id="partly", created=7, failures=[make_failure(SHAPES[0], Verdict.NONFINITE, "")]
        )
    )
    assert [row.id for row in store.latest_eligible(None)] == ["latest"]


def test_a_store_and_a_board_of_all_runs_agree_on_who_stands(store: Store) -> None:
    """The store reads few of the runs: failures of one file and what nobody vouches for count."""
    draw = random.Random(5)
    for i in range(300):
        verdict = draw.choice([Verdict.PASSED, Verdict.PASSED, Verdict.CRASHED])
        doubts = draw.choice([(), (), (Doubt.UNSIGNED_IMPORT,), (Doubt.SHARED_GPU,)])
        store.add(
            make_run(
                f"k{draw.randrange(25)}", id=f"{i:03}", created=draw.randrange(99), verdict=verdict,
                doubts=doubts, sha256=draw.choice("ab") * 64, digest=draw.choice("de") * 64,
                mode=draw.choice([Mode.RANKED, Mode.RANKED, Mode.TEST]),
                failures=[make_failure(SHAPES[0], Verdict.CRASHED, "")] * (verdict != "passed"),
            )
        )  # fmt: skip
    for known in (None, make_task(digest="e" * 64)):
        (whole,) = leaderboard.boards(store.runs(), task=known)
        (quick,) = leaderboard.boards(store.latest_eligible(known), task=known)
        assert quick.standings == whole.standings and len(whole.standings) > 9


def test_a_file_that_failed_later_gives_way_to_what_passed_before_it(store: Store) -> None:
    store.add(make_run("k", id="older", created=1, sha256="cd" * 32))
    store.add(make_run("k", id="lucky", created=2), make_run("alone", id="alone", created=2))
    store.add(make_run("k", id="failed", created=3, verdict=Verdict.IMPORT_ERROR))
    store.add(make_run("alone", id="too", created=3, verdict=Verdict.IMPORT_ERROR))
    assert [row.id for row in store.latest_eligible(None)] == ["older"]


def test_each_author_device_and_version_of_a_task_has_a_latest_run(store: Store) -> None:
    store.add(make_run("k", id="1", author="ada"))
    store.add(make_run("k", id="2", author="bob"))
    store.add(make_run("k", id="3", digest="e" * 64))
    assert {row.id for row in store.latest_eligible(None)} == {"1", "2", "3"}
    assert store.latest_eligible(None, task="nothing") == ()


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-320])
def test_a_score_that_is_no_time_is_stored_as_none_and_never_ranked(
    store: Store, score: float
) -> None:
    store.add(make_run("sound", id="sound", score_ns=None))
    store.add(make_run("broken", id="broken", score_ns=score))
    assert store.get("broken").score_ns is None
    assert names(store) == []


@pytest.mark.parametrize("score", [math.nan, math.inf, 0.0, -1.0, 1e-320])
def test_the_database_itself_refuses_such_a_score_or_takes_it_for_none(
    store: Store, score: float
) -> None:
    store.add(make_run(id="run"))
    change = database.runs.update().values(score_ns=score)
    with (
        contextlib.suppress(sa.exc.IntegrityError),
        store._engine.connect() as connection,
        connection.begin(),
    ):
        connection.execute(change)
    (row,) = store.runs()
    assert row.score_ns is None or row.score_ns == pytest.approx(20_000.0)


# Rows that no harness wrote


def spoil(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        connection.execute(statement)


BAD = ["'NaN'", "9e999", "-9e999", "0", "-1", "1e-320", "NULL", "'fast'", "x'00ff'", "1e19"]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("column", ["score_ns", "low_ns"])
def test_bad_numbers_put_straight_into_the_database_never_rank_and_never_crash(
    path: Path, column: str, value: str
) -> None:
    with open_store(f"sqlite:///{path}", create=True) as store:
        store.add(make_run(id="newer", created=5, times_us=(10, 10, 10)))
    spoil(path, f"UPDATE harness_runs SET {column} = {value} WHERE id = 'newer'")
    with open_store(f"sqlite:///{path}", create=False) as store:
        assert [row.id for row in store.latest_eligible(None)] == ["first"]
        board = leaderboard.boards(store.runs())[0]
    assert [s.run for s in board.standings] == ["first"]


@pytest.mark.parametrize(
    "change",
    [
        "shapes = '[[[[\"m\", 1]], null, NaN, 1, 1, null]]'",
        "shapes = '[]'",
        "shapes = 'null'",
        "shapes = '[1, 2]'",
        "shapes = 'no json'",
        'shapes = \'[[[["m", 1]], null, 1.0, 1.0, 1.0, "fast"]]\'',
        "shapes = '[[[[\"m\", 1]], true, 1.0, 1.0, 1.0, null]]'",
        "doubts = '[\"emulated\"]'",
        "doubts = '[\"no such doubt\"]'",
        "submission = x'ff00'",
        "isolation = 'trust me'",
        "score_ns = 1.5",
        "created_ns = 'yesterday'",
    ],
)
def test_a_row_changed_by_hand_gives_way_to_the_sound_one_before_it(
    path: Path, change: str
) -> None:
    with open_store(f"sqlite:///{path}", create=True) as store:
        store.add(make_run(id="newer", created=5))
    spoil(path, f"UPDATE harness_runs SET {change} WHERE id = 'newer'")
    with open_store(f"sqlite:///{path}", create=False) as store:
        ids = [row.id for row in store.latest_eligible(None)]
        assert "newer" not in ids
        leaderboard.boards(store.runs())


def test_text_that_is_not_utf8_is_read_with_replacements(path: Path) -> None:
    spoil(path, "UPDATE harness_runs SET message = CAST(x'ff41' AS TEXT)")
    with open_store(f"sqlite:///{path}", create=False) as store:
        assert store.runs()[0].message == "\ufffdA"


def test_a_damaged_run_is_an_error_with_its_name(path: Path) -> None:
    spoil(path, "UPDATE harness_details SET data = x'00'")
    with (
        open_store(f"sqlite:///{path}", create=False) as store,
        pytest.raises(StoreError, match="run first is damaged"),
    ):
        store.get("first")


def test_a_run_that_would_unpack_to_more_than_any_run_holds_is_not_unpacked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.store.MAX_RUN_BYTES", 100)
    with (
        open_store(f"sqlite:///{path}", create=False) as store,
        pytest.raises(StoreError, match="run first is damaged .*larger than any run"),
    ):
        store.get("first")


# Files


def refusal(path: Path, *, create: bool) -> str:
    """The error that opening gives; checks that the file kept every byte."""
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught, open_store(f"sqlite:///{path}", create=create):
        pass
    assert path.read_bytes() == before
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("create", [True, False])
def test_files_that_are_no_sound_database_are_refused_and_left_untouched(
    path: Path, tmp_path: Path, create: bool
) -> None:
    text = tmp_path / "text.db"
    text.write_text("submission,score\n" * 200)
    assert "not a database" in refusal(text, create=create)
    short = tmp_path / "short.db"
    short.write_bytes(path.read_bytes()[:5000])
    assert "malformed" in refusal(short, create=create)
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE cookies (a)")
    assert "another program" in refusal(other, create=create)


@pytest.mark.parametrize("create", [True, False])
def test_a_database_of_a_newer_harness_is_refused_and_left_untouched(
    path: Path, create: bool
) -> None:
    spoil(path, "UPDATE harness_schema SET number = 99")
    assert "newer harness (schema 99" in refusal(path, create=create)


def test_reading_needs_a_database_and_an_empty_file_is_none(tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    for name in ("none.db", "empty.db", "no/folder.db"):
        with (
            pytest.raises(MissingStore, match="harness run"),
            open_store(f"sqlite:///{tmp_path / name}", create=False),
        ):
            pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty.db"]


@pytest.mark.parametrize(
    "url",
    [
        *("results/harness.db", "", "mysql://host/db", "nonsense://"),
        *("sqlite:////tmp/never.db?mode=ro", "sqlite://host/never.db"),
    ],
)
def test_what_is_no_url_of_ours_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError), open_store(url, create=True):
        pass


def test_a_folder_that_cannot_be_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(StoreError, match="file"),
        open_store(f"sqlite:///{tmp_path / 'file' / 'x.db'}", create=True),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("/tmp/x/org.db", "sqlite:////tmp/x/org.db"),
        ("org.db", "sqlite:///org.db"),
        ("sqlite:org.db", "for instance sqlite:///results/harness.db"),
    ],
)
def test_a_plain_path_is_told_how_it_is_written_as_a_url(text: str, write: str) -> None:
    with pytest.raises(UsageError) as refused, open_store(text, create=False):
        pass
    assert str(refused.value) == f"{text!r} is not a database URL; write {write}"


def test_a_database_held_by_another_writer_is_an_error_after_the_wait(path: Path) -> None:
    with open_store(f"sqlite:///{path}", create=True, busy_ns=100_000_000) as store:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        assert store.get("first").id == "first"  # readers do not wait
        with pytest.raises(StoreError, match="locked: another process holds it"):
            store.add(make_run(id="second"))
        holder.execute("ROLLBACK")
        holder.close()
        store.add(make_run(id="second"))
        assert len(store.runs()) == 2


def test_a_database_that_is_locked_is_not_read_as_it_is(tmp_path: Path) -> None:
    """Whoever holds it may have written half of a change."""
    path = tmp_path / "some.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE begun (a)")  # with a rollback journal, of which no log tells
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        sqlite_file.connect_read_only(path, 1_000_000)
    holder.execute("ROLLBACK")
    sqlite_file.connect_read_only(path, 1_000_000).close()
    holder.close()


def test_the_one_who_makes_a_database_is_told_that_it_is_new(url: str) -> None:
    for new in (True, False):
        with open_store(url, create=True) as store:
            assert store.new is new
    with open_store(url, create=False) as store:
        assert not store.new


def test_an_older_schema_is_migrated_after_a_copy_and_readers_are_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_a_column(connection: sa.Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE harness_details ADD COLUMN note TEXT")

    monkeypatch.setattr(database, "MIGRATIONS", (add_a_column,))
    with (
        pytest.raises(StoreError, match="schema 1 is older"),
        open_store(f"sqlite:///{path}", create=False),
    ):
        pass
    with open_store(f"sqlite:///{path}", create=True) as store:
        assert store.get("first").id == "first"
    copy = path.with_name("harness.db.schema1.bak")
    monkeypatch.undo()
    with open_store(f"sqlite:///{copy}", create=False) as store:
        assert store.get("first").id == "first"
    assert "newer harness" in refusal(path, create=False)


def test_a_migration_that_fails_leaves_everything_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(connection: sa.Connection) -> None:
        connection.exec_driver_sql("DROP TABLE harness_details")
        connection.exec_driver_sql("SELECT no_such_function()")

    monkeypatch.setattr(database, "MIGRATIONS", (break_off,))
    with pytest.raises(StoreError), open_store(f"sqlite:///{path}", create=True):
        pass
    monkeypatch.undo()
    with open_store(f"sqlite:///{path}", create=False) as store:
        assert store.get("first").id == "first"


# Several processes

WRITER = """
import sys
from harness.store import open_store
from tests.fakes import make_run
for i in range(int(sys.argv[3])):
    with open_store(sys.argv[1], create=True) as store:
        store.add(make_run(id=f"{sys.argv[2]}-{i}"))
        print(i, flush=True)
"""


def start_writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", WRITER, url, name, str(count)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_eight_processes_that_store_25_runs_each_into_a_new_database_store_200(url: str) -> None:
    writers = [start_writer(url, f"w{i}", 25) for i in range(8)]
    for writer in writers:
        writer.communicate(timeout=100)
        assert writer.returncode == 0
    with open_store(url, create=False) as store:
        assert len({row.id for row in store.runs()}) == 200


def test_a_writer_killed_at_any_moment_leaves_whole_runs_only(url: str) -> None:
    writer = start_writer(url, "w", 100_000)
    assert writer.stdout is not None
    told = [writer.stdout.readline() for _ in range(20)]
    time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    told += writer.communicate()[0].splitlines()
    with open_store(url, create=False) as store:
        found = {row.id for row in store.runs()}
        assert found >= {f"w-{line.strip()}" for line in told if line.strip()}
        assert len([store.get(id) for id in found]) == len(found) >= 20


READER = """
import os, sys
from harness.store import open_store
with open_store("sqlite://", create=True) as store:
    store.runs()  # everything is imported before the rights are given up
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
with open_store(sys.argv[1], create=False) as store:
    run = store.get("first")
    print(run.id)
try:
    with open_store(sys.argv[1], create=True) as store:
        store.add(run)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_store_that_is_only_read_says_so_before_anything_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "harness.db"
    with open_store(f"sqlite:///{path}", create=True) as store:
        store.prove_writable()
        monkeypatch.setattr(os, "access", lambda where, mode: Path(where) != tmp_path)
        with pytest.raises(StoreError, match=f"{tmp_path}: cannot be written: .*--db"):
            store.prove_writable()


def test_a_folder_that_cannot_be_written_can_be_read_and_says_so_when_written() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "harness.db"
        with open_store(f"sqlite:///{path}", create=True) as store:
            store.add(make_run(id="first"))
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        argv = [sys.executable, "-c", READER, f"sqlite:///{path}"]
        got = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
        Path(folder).chmod(0o755)
    assert got.returncode == 0, got.stderr
    first, second = got.stdout.splitlines()
    assert first == "first"
    assert second.startswith("StoreError") and "permissions" in second


def test_without_the_postgresql_driver_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with (
        pytest.raises(StoreError, match="the PostgreSQL driver is missing; in the") as caught,
        open_store("postgresql://me:secret@localhost/x", create=True),
    ):
        pass
    assert "secret" not in str(caught.value)
    install = "pip install -e '.[postgres]'"
    assert str(caught.value).endswith(f"in the harness's checkout: {install}")


def test_a_run_of_every_field_default_survives(store: Store) -> None:
    run = dataclasses.replace(make_run(times_us=()), cases=(), score_ns=None)
    store.add(run)
    assert store.get(run.id) == run


def test_a_database_that_is_cut_short_is_refused_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "cut.db"
    url = f"sqlite:///{path}"
    with open_store(url, create=True) as store:
        for number in range(40):
            store.add(make_run(id=f"{number:012x}"))
    path.write_bytes(path.read_bytes()[:-1000])
    before = path.read_bytes()
    with pytest.raises(StoreError, match="cut short"), open_store(url, create=True):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [None, "abc", -3])
def test_a_schema_number_that_is_none_is_damage(tmp_path: Path, number: object) -> None:
    path = tmp_path / "odd.db"
    url = f"sqlite:///{path}"
    with open_store(url, create=True) as store:
        store.add(make_run())
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE fresh (number)")
        connection.execute("DROP TABLE harness_schema")
        connection.execute("ALTER TABLE fresh RENAME TO harness_schema")
        connection.execute("INSERT INTO harness_schema VALUES (?)", (number,))
    with pytest.raises(StoreError, match="damaged"), open_store(url, create=True):
        pass


def test_a_database_without_one_of_its_tables_is_refused_before_a_run_is_made(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/torn.db"
    with open_store(url, create=True) as store:
        store.add(make_run())
    spoil(tmp_path / "torn.db", "DROP TABLE harness_details")
    for create in (True, False):
        with (
            pytest.raises(StoreError, match="lacks the table harness_details"),
            open_store(url, create=create),
        ):
            pass


@pytest.mark.parametrize("lacks", ["a shape", "a test case"])
def test_an_incomplete_run_takes_no_standing_away_however_it_got_there(
    path: Path, lacks: str
) -> None:
    task = make_task()
    newer = make_run(id="newer", created=5)
    kinds = [case.case.kind for case in newer.cases]
    gone = kinds.index(CaseKind.BENCHMARK if lacks == "a shape" else CaseKind.TEST)
    cases = [case for place, case in enumerate(newer.cases) if place != gone]
    if lacks == "a test case":
        task = dataclasses.replace(task, tests=(*task.tests, *task.tests))
        complete = dataclasses.replace(newer, cases=(*newer.cases, newer.cases[gone]))
        cases = list(newer.cases)
    else:
        complete = newer
    medians = [c.timing.median_ns for c in cases if c.timing is not None]
    score = math.exp(sum(map(math.log, medians)) / len(medians))
    older = dataclasses.replace(complete, id="older", created_ns=newer.created_ns - 10**9)
    with open_store(f"sqlite:///{path}", create=True) as store:
        store.add(older)
        store.add(dataclasses.replace(newer, cases=tuple(cases), score_ns=score))
        assert "newer" in [row.id for row in store.latest_eligible(None)], "SQL alone takes it"
        rows = store.latest_eligible(task)
    assert "older" in [row.id for row in rows]
    (board,) = leaderboard.boards(rows, task=task)
    assert "newer" not in [s.run for s in board.standings]


def test_a_filter_that_is_no_text_finds_nothing_and_is_no_crash(store: Store) -> None:
    assert store.runs(task="\ud800") == store.runs(device="n\udcff") == ()


def test_a_run_is_also_found_by_its_submissions_name_where_that_is_one_authors(
    store: Store,
) -> None:
    for id, created in (("1a", 1), ("2b", 3), ("3c", 2)):
        store.add(make_run("mine", id=id, created=created))
    assert store.get("mine").id == "2b"
    for id, created, latest in (("0a", 2, "2b"), ("0b", 5, "0b")):  # the same person's, unsigned
        store.add(make_run("mine", author="anonymous", id=id, created=created))
        assert store.get("mine").id == latest
    store.add(make_run("mine", author="another", id="4d", created=1))
    told = (
        "'mine' may be 0b (mine by anonymous), 2b (mine by ada), 4d (mine by another); "
        "name one by its id"
    )
    with pytest.raises(UsageError, match=re.escape(told)):
        store.get("mine")
    with pytest.raises(UsageError, match="none of a submission of that name"):
        store.get("min")


def test_a_standing_is_found_of_the_only_author_and_on_another_device(store: Store) -> None:
    def held(run: Run) -> tuple[str, str] | None:
        found = store.standing(run, None)
        return None if found is None else (found[0], found[1].run)

    ranked = make_run("mine", id="1a", created=1)
    unsigned = make_run("mine", author="anonymous", id="2b", created=2, mode=Mode.TEST)
    later = make_run("mine", id="3c", created=3, mode=Mode.TEST, device=CPU)
    store.add(ranked, unsigned, later)
    assert [held(run) for run in (ranked, unsigned, later)] == [("NVIDIA H200", "1a")] * 3

    on_cpu = make_run("mine", author="anonymous", id="4d", created=4, device=CPU)
    store.add(on_cpu)
    assert held(later) == (CPU.name, "4d") and held(unsigned) == ("NVIDIA H200", "1a")
    store.add(make_run("mine", author="anonymous", id="5e", created=5))  # of two, one's own
    assert held(unsigned) == ("NVIDIA H200", "5e") and held(ranked) == ("NVIDIA H200", "1a")

    store.add(make_run("mine", author="another", id="6f", created=6, mode=Mode.TEST))
    assert held(later) == ("NVIDIA H200", "1a")  # nobody's may be the other one's now
    assert held(store.get("6f")) is None


def test_a_run_is_also_found_by_its_submissions_file(store: Store) -> None:
    store.add(make_run("half", id="1a"))
    store.add(make_run("odd.py", id="2b"))
    for key in ("half", "half.py", "submissions/half.py", "/elsewhere/half.py", "submissions/half"):
        assert store.get(key).id == "1a"
    assert store.get("odd.py").id == "2b"  # a name as it is wins
    for key in ("half.json", "submissions/", "/", ".py"):
        with pytest.raises(UsageError):
            store.get(key)
