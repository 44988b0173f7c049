"""The results database below the store: tables, schema number, opening and migrating.

SQLite by default (sqlite_file.py), PostgreSQL by URL, the same SQLAlchemy Core for both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from harness import sqlite_file
from harness.errors import StoreError, UsageError
from harness.sqlite_file import BUSY_NS, explained

#: A score is a time (leaderboard.is_time); SQLite stores NaN as NULL, so NULL must mean "none".
_SCORE = "{0} IS NULL OR ({0} >= 0.001 AND {0} < 1e18)"

metadata = sa.MetaData()

schema = sa.Table("harness_schema", metadata, sa.Column("number", sa.Integer, nullable=False))

runs = sa.Table(
    "harness_runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("task_digest", sa.Text, nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("created_ns", sa.BigInteger, nullable=False),
    sa.Column("submission", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("device_kind", sa.Text, nullable=False),
    sa.Column("device", sa.Text, nullable=False),
    sa.Column("isolation", sa.Text, nullable=False),
    sa.Column("clock", sa.Text, nullable=False),
    sa.Column("doubts", sa.Text, nullable=False),  # JSON: [str]
    sa.Column("custom_shapes", sa.Integer, nullable=False),
    sa.Column("never_ranked", sa.Integer, nullable=False),  # a doubt of UNRANKED_DOUBTS
    sa.Column("tests", sa.Integer, nullable=False),
    sa.Column("failed", sa.Integer, nullable=False),
    sa.Column("score_ns", sa.Double),
    sa.Column("low_ns", sa.Double),
    sa.Column("high_ns", sa.Double),
    sa.Column("shapes", sa.Text, nullable=False),  # JSON, see store._pack_shapes
    *(sa.CheckConstraint(_SCORE.format(name)) for name in ("score_ns", "low_ns", "high_ns")),
)

details = sa.Table(
    "harness_details",
    metadata,
    sa.Column("run", sa.Text, sa.ForeignKey("harness_runs.id"), primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),  # zlib of the whole run as JSON
)

# Written out, not bound: a partial index serves only a query that repeats its condition.
_PASSED = sa.and_(runs.c.mode == sa.text("'ranked'"), runs.c.verdict == sa.text("'passed'"))

#: What SQL can tell about eligibility; leaderboard.ineligible has the last word on each row.
eligible = sa.and_(
    _PASSED,
    runs.c.custom_shapes == 0,
    runs.c.never_ranked == 0,
    runs.c.failed == 0,
    runs.c.tests > 0,
    runs.c.score_ns >= 0.001,
    runs.c.score_ns < 1e18,
)

#: What SQL can tell of a run that speaks against others; leaderboard.refutes has the last word.
refuting = sa.and_(
    runs.c.mode == sa.text("'ranked'"),
    runs.c.custom_shapes == 0,
    sa.or_(runs.c.verdict != sa.text("'passed'"), runs.c.never_ranked != 0),
)

#: What a board row belongs to: the latest run of each is its standing, as a rule.
entrant = (
    runs.c.task,
    runs.c.task_digest,
    runs.c.device_kind,
    runs.c.device,
    runs.c.author,
    runs.c.submission,
)

# Only the boards read in this order, and only these rows: 100,000 runs answer from the index alone.
sa.Index(
    "harness_runs_board",
    *entrant,
    runs.c.created_ns.desc(),
    runs.c.id.desc(),
    runs.c.score_ns,
    runs.c.custom_shapes,
    runs.c.never_ranked,
    runs.c.failed,
    runs.c.tests,
    runs.c.mode,
    runs.c.verdict,
    sqlite_where=_PASSED,  # PostgreSQL indexes all: naming its dialect here would import it always
)
sa.Index("harness_runs_created", runs.c.created_ns, runs.c.id)

#: MIGRATIONS[n - 1] turns a database of schema n into one of n + 1; a new one is made whole.
MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = ()


class MissingStore(StoreError, UsageError):
    """There is no database of that name yet, and nothing is wrong with the machine: exit code 2."""


def _as_url(text: str) -> str:
    """How to write what is no URL: most often the plain path of a file."""
    if not text.strip() or any(sign in text for sign in ":?"):
        return "write for instance sqlite:///results/harness.db"
    return f"write sqlite:///{text}"


def open_engine(url: str, *, create: bool, busy_ns: int = BUSY_NS) -> tuple[sa.Engine, str, bool]:
    """An engine on a database of the current schema, its name for messages (no password), and
    whether its tables were made now.

    With `create` it is made or brought up to date as needed and may be written; otherwise nothing
    in it is changed.  A damaged database, another program's and one of a newer schema are refused
    before the first write.  Raises StoreError, MissingStore, and UsageError for what is no URL.
    """
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
    except exc.ArgumentError:
        raise UsageError(f"{url!r} is not a database URL; {_as_url(url)}") from None
    if backend == "sqlite":
        if parsed.query or parsed.host:
            raise UsageError(f"{url!r}: write sqlite:///FILE, without a host and ?options")
        return _open_sqlite(parsed.database, create, busy_ns)
    if backend == "postgresql":
        return _open_postgres(parsed, create)
    raise UsageError(f"{backend} databases are not supported; use a sqlite or postgresql URL")


def _open_postgres(url: sa.URL, create: bool) -> tuple[sa.Engine, str, bool]:
    where = url.render_as_string(hide_password=True)
    try:
        engine = sa.create_engine(url.set(drivername="postgresql+psycopg"))
    except ImportError:
        raise StoreError(
            f"{where}: the PostgreSQL driver is missing; in the harness's checkout: "
            "pip install -e '.[postgres]'"
        ) from None
    try:
        with explained(where):
            if not create and not sa.inspect(engine).has_table(schema.name):
                raise MissingStore(f"{where}: nothing has been stored yet; `harness run` begins it")
            new = _settle(engine, where, create=create)
    except StoreError:
        engine.dispose()  # nobody else could close its connections
        raise
    return engine, where, new


def _open_sqlite(database: str | None, create: bool, busy_ns: int) -> tuple[sa.Engine, str, bool]:
    if database is None or database in ("", ":memory:"):
        engine = sqlite_file.memory_engine()
        _settle(engine, "the database in memory", create=True)
        return engine, "the database in memory", False  # as nobody's typing error makes one
    path, where = Path(database), database
    if not sqlite_file.is_begun(path):
        if not create:
            raise MissingStore(f"{where}: there is no database yet; `harness run` makes it")
        sqlite_file.make_folder(path)
    else:
        with explained(where):
            _look_first(path, where, busy_ns)
    with explained(where):
        engine = sqlite_file.file_engine(path, write=create, busy_ns=busy_ns)
        new = _settle(engine, where, create=create, file=path)
    return engine, where, new


def _look_first(path: Path, where: str, busy_ns: int) -> None:
    """Refuse another program's file and a newer schema before anything touches the file."""
    connection = sqlite_file.connect_read_only(path, busy_ns)
    try:
        names = {n for (n,) in connection.execute("SELECT name FROM sqlite_master")}
        if names and schema.name not in names:
            raise StoreError(f"{where}: another program's database; name another one with --db")
        if sqlite_file.is_cut(path, connection):
            raise StoreError(
                f"{where}: it is cut short, and left as it is; restore a copy, or name another one "
                "with --db"
            )
        if names:
            found = connection.execute(f"SELECT number FROM {schema.name}").fetchone()
            number = found[0] if found else 0
            _refuse_newer(number, where)
            missing = {table for table in metadata.tables if table not in names}
            if number == _current() and missing:
                raise StoreError(
                    f"{where}: it is damaged (it lacks the table {min(missing)}), and left as it "
                    "is; restore a copy, or name another one with --db"
                )
    finally:
        connection.close()


def _refuse_newer(found: object, where: str) -> None:
    if type(found) is not int or found < 0:
        raise StoreError(
            f"{where}: it is damaged (its schema number is {found!r}), and left as it is; "
            "restore a copy"
        )
    if found > _current():
        raise StoreError(
            f"{where}: written by a newer harness (schema {found}, this one knows {_current()}) "
            "and left as it is; upgrade kernel-harness"
        )


def _current() -> int:
    return 1 + len(MIGRATIONS)


def _settle(engine: sa.Engine, where: str, *, create: bool, file: Path | None = None) -> bool:
    """Make sure of the current schema: check it, and with `create` make or migrate it.

    Returns whether it was made: of programs that start at once, one makes it.
    """
    with engine.connect() as connection, connection.begin():
        found = _number(connection)
    _refuse_newer(found, where)
    if found == _current():
        return False
    if not create:
        raise StoreError(
            f"{where}: schema {found} is older than this harness; any `harness run` updates it"
        )
    with engine.connect().execution_options(write=True) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(1751216500)")  # one maker
        return _migrate(connection, where, file)


def _migrate(connection: sa.Connection, where: str, file: Path | None) -> bool:
    found = _number(connection)  # again, for another process may have been first
    _refuse_newer(found, where)
    if found == _current():
        return False
    if found and file is not None:
        sqlite_file.back_up(file, file.with_name(f"{file.name}.schema{found}.bak"))
    if found and file is None:
        _copy_tables(connection, found)
    if not found:
        metadata.create_all(connection)
    for migrate in MIGRATIONS[found - 1 :] if found else ():
        migrate(connection)
    connection.execute(schema.delete())
    connection.execute(schema.insert().values(number=_current()))
    return not found


def _copy_tables(connection: sa.Connection, found: int) -> None:
    """Keep the tables of an older schema beside the migrated ones, where there is no file to copy.

    In the migration's own transaction: there is a copy exactly when there was a migration.
    """
    for table in (runs.name, details.name):
        copy = f"{table}_schema{found}"
        if not sa.inspect(connection).has_table(copy):
            connection.exec_driver_sql(f"CREATE TABLE {copy} AS TABLE {table}")


def _number(connection: sa.Connection) -> int:
    """The schema number; 0 where there are no tables."""
    if not sa.inspect(connection).has_table(schema.name):
        return 0
    return connection.scalar(sa.select(schema.c.number)) or 0
