"""SQLite as the store needs it: immediate writers, WAL, reading only, errors in words."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event, exc

from harness.errors import StoreError

#: How long a writer waits for its turn.  5 s lost one run in 800 with eight writers (FAULTS B04).
BUSY_NS = 60_000_000_000

#: Of a file or a folder that cannot be written; the low byte is what the extended codes share.
_UNWRITABLE = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})

_ELSEWHERE = "name another one with --db"

#: A part of the database's own message -> what to do about it.
_REMEDIES = {
    "locked": "another process holds it; try again when that one is done",
    "not a database": f"this file is something else, and was left as it is; {_ELSEWHERE}",
    "malformed": f"damaged or cut short, and left as it is; restore a copy, or {_ELSEWHERE}",
    "readonly": f"it cannot be written; check the permissions, or {_ELSEWHERE}",
    "unable to open": f"check that the folder exists and can be written, or {_ELSEWHERE}",
    "disk I/O": f"is the disk full, or failing? make room, or {_ELSEWHERE}",
    "full": "make room and try again; the run was not stored",
    "no such": f"it is damaged, or another program's; {_ELSEWHERE}",
}


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn a database's errors into a StoreError that says where, what, and what to do."""
    try:
        yield
    except (exc.DBAPIError, sqlite3.Error) as error:
        origin = error.orig if isinstance(error, exc.DBAPIError) else error
        reason = str(origin).strip().split("\n")[0]
        remedy = next((text for sign, text in _REMEDIES.items() if sign in reason), None)
        raise StoreError(f"{where}: {reason}" + (f": {remedy}" if remedy else "")) from error


def is_begun(path: Path) -> bool:
    """Whether the file holds anything; an empty one is a database that nobody has begun."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; {_ELSEWHERE}") from None


def make_folder(path: Path) -> None:
    """Make the folder that the database will lie in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path.parent}: {error.strerror}; {_ELSEWHERE}") from None


def memory_engine() -> sa.Engine:
    """A database that lives as long as its engine: one connection for everybody."""
    return _engine(lambda: _connect(":memory:", BUSY_NS), sa.StaticPool)


def file_engine(path: Path, *, write: bool, busy_ns: int) -> sa.Engine:
    """An engine on a file: in WAL mode when `write`, else one that cannot change it."""
    if not write:
        return _engine(lambda: connect_read_only(path, busy_ns), sa.NullPool)
    _use_wal(path, busy_ns)
    return _engine(lambda: _connect(str(path), busy_ns), sa.NullPool)


def back_up(path: Path, copy: Path) -> None:
    """Copy a database, its log included, before it is migrated.  Never overwrites a copy."""
    if copy.exists():
        raise StoreError(f"{copy}: a copy from an earlier attempt is in the way; move it first")
    source, target = _connect(str(path), BUSY_NS), _connect(str(copy), BUSY_NS)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()


def connect_read_only(path: Path, busy_ns: int) -> sqlite3.Connection:
    """Open without changing the file, also in a folder that cannot be written."""
    name = f"file:{quote(str(path.absolute()))}"
    connection = _connect(f"{name}?mode=ro", busy_ns, uri=True)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        connection.close()
        # Where it is locked somebody writes, and what is read as it is may be half written.
        if error.sqlite_errorcode & 0xFF not in _UNWRITABLE:
            raise
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        # WAL needs a shared-memory file beside the database even to read; where that cannot be
        # made and no log waits, nobody is writing and the file can be read as it is.
        connection = _connect(f"{name}?immutable=1", busy_ns, uri=True)
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    return connection


def is_cut(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether the file is shorter than its own count of pages; not known while a log waits."""
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        return False
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return bool(path.stat().st_size < pages * size)


def _engine(creator: Callable[[], sqlite3.Connection], pool: type[sa.Pool]) -> sa.Engine:
    engine = sa.create_engine("sqlite+pysqlite://", creator=creator, poolclass=pool)

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A transaction that reads first cannot become a writer when another one wrote meanwhile,
        # and no timeout helps (FAULTS B04): a writer takes the lock before its first statement.
        write = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _connect(name: str, busy_ns: int, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        name, timeout=busy_ns / 1e9, isolation_level=None, check_same_thread=False, uri=uri
    )
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def _use_wal(path: Path, busy_ns: int) -> None:
    """Readers and one writer do not wait for each other in WAL mode.

    The switch needs the file for itself and does not honour the busy timeout: try until then.
    """
    deadline = time.monotonic_ns() + busy_ns
    connection = _connect(str(path), busy_ns)
    try:
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL").fetchall()
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic_ns() > deadline:
                    raise
                time.sleep(0.02)
    finally:
        connection.close()
