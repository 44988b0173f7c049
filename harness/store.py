"""Runs in, runs out.  One run is one transaction; what is stored is never changed.

A light row per run answers leaderboards; the whole run, samples and log included, lies beside it
compressed.  Rows are read with suspicion: anybody can write to a file.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc

from harness import codec, leaderboard, names
from harness.database import (
    MissingStore,
    details,
    eligible,
    entrant,
    open_engine,
    refuting,
    runs,
)
from harness.errors import StoreError, UsageError
from harness.model import (
    UNRANKED_DOUBTS,
    Clock,
    Doubt,
    Isolation,
    Mode,
    Run,
    Shape,
    ShapeStanding,
    Standing,
    Summary,
    Task,
    Verdict,
)
from harness.sqlite_file import BUSY_NS, explained

__all__ = ["MissingStore", "Store", "open_store"]

#: Rows of failed runs by the file that they are of.
_Failed: TypeAlias = dict[tuple[object, ...], list[sa.Row[Any]]]

#: A run with every sample takes 50 to 150 kB, its log and source up to 1.1 MB more.
MAX_RUN_BYTES = 64 << 20


@contextmanager
def open_store(url: str, *, create: bool, busy_ns: int = BUSY_NS) -> Iterator[Store]:
    """Open the results database at `url`: to add runs with `create`, else only to read.

    Raises MissingStore when there is none to read, StoreError when it cannot be used, UsageError
    when `url` is none.
    """
    engine, where, new = open_engine(url, create=create, busy_ns=busy_ns)
    try:
        yield Store(engine, where, new=new)
    finally:
        engine.dispose()


class Store:
    """The runs of one database; made by `open_store`.  `new`: it was made as this was opened."""

    def __init__(self, engine: sa.Engine, where: str, *, new: bool) -> None:
        self._engine = engine
        self.where = where
        self.new = new

    def add(self, *made: Run) -> None:
        """Store runs, all of them whole or none.  Raises StoreError when an id is there already.

        A score that is not a time (NaN, zero, ...) is stored as none.
        """
        rows = list(map(_row, made))
        with explained(self.where), self._engine.connect() as connection:
            writer = connection.execution_options(write=True)
            try:
                with writer.begin():
                    for run, row in zip(made, rows, strict=True):
                        writer.execute(runs.insert().values(row))
                        writer.execute(details.insert().values(run=row["id"], data=_data(run, row)))
            except exc.IntegrityError as error:
                known = [run.id for run in made if self._has(run.id)]
                if not known:
                    raise
                raise StoreError(f"{self.where}: run {known[0]} is stored already") from error

    def prove_writable(self) -> None:
        """Raise StoreError where nothing can be added: a file or a folder that is only read."""
        if self._engine.dialect.name != "sqlite":
            return  # whose rights the server knows
        file = Path(self.where)
        for path in (file, file.parent):
            if not os.access(path, os.W_OK):
                remedy = "make it writable, or name another database with --db"
                raise StoreError(f"{path}: cannot be written: {remedy}")

    def get(self, key: str) -> Run:
        """The run whose id is `key`, else the latest of a submission so named or whose file is,
        else the run whose id alone begins with it.  Raises UsageError when there is none, or not
        one alone.
        """
        with explained(self.where), self._engine.connect() as connection:
            found = self._found(key)
            if not found:
                raise UsageError(
                    f"{self.where}: no run {key!r}, and none of a submission of that name; "
                    "`harness leaderboard --all` lists them"
                )
            if len(found) > 1:
                raise UsageError(names.ambiguous(key, found))
            run = found[0][0]
            data = connection.scalar(sa.select(details.c.data).where(details.c.run == run))
        try:
            return codec.decode(Run, json.loads(_unpacked(data or b"")))
        except (ValueError, TypeError, RecursionError, zlib.error) as error:
            raise StoreError(f"{self.where}: run {run} is damaged ({error})") from error

    def knows(self, key: str) -> bool:
        """Whether `get` has a run for it, or several to choose from."""
        return bool(self._found(key))

    def _found(self, key: str) -> list[tuple[str, str, str]]:
        """Id, submission and author of the runs that `key` may mean, by the first rule to fit."""
        found = self._called(runs.c.id == key, 1)
        found = found or self._latest_of(key) or self._latest_of(names.stem(key))
        if not found and key:
            found = self._called(runs.c.id.startswith(key, autoescape=True), 5)
        return found

    def _called(self, fits: sa.ColumnElement[bool], most: int) -> list[tuple[str, str, str]]:
        query = sa.select(runs.c.id, runs.c.submission, runs.c.author).where(fits)
        rows = self._rows(query.order_by(runs.c.id).limit(most))
        return [(row.id, row.submission, row.author) for row in rows]

    def _latest_of(self, submission: str) -> list[tuple[str, str, str]]:
        """The newest run of each author's submission of that name.

        Nobody's are of the only author there is: who signs a file has often run it before.
        """
        newest: dict[str, tuple[str, str, str]] = {}
        query = sa.select(runs.c.id, runs.c.submission, runs.c.author)
        query = query.where(runs.c.submission == _text(submission))
        for row in self._rows(query.order_by(runs.c.created_ns.desc(), runs.c.id.desc())):
            newest.setdefault(row.author, (row.id, row.submission, row.author))
        found = list(newest.values())
        return found if len(newest.keys() - {names.NOBODY}) > 1 else found[:1]

    def boards(self) -> tuple[tuple[str, str], ...]:
        """Task and device of every run, each pair once, in order."""
        query = sa.select(runs.c.task, runs.c.device).distinct()
        return tuple(sorted((row.task, row.device) for row in self._rows(query)))

    def runs(
        self,
        *,
        task: str | None = None,
        device: str | None = None,
        mode: Mode | None = None,
        limit: int | None = None,
    ) -> tuple[Summary, ...]:
        """Summaries of all runs, newest first.  A row that no harness wrote is left out."""
        query = sa.select(runs).order_by(runs.c.created_ns.desc(), runs.c.id.desc())
        query = _narrow(query, task, device).limit(limit)
        if mode is not None:
            query = query.where(runs.c.mode == mode)
        return tuple(s for s in self._summaries(query) if s is not None)

    def latest_eligible(
        self, known: Task | None, *, task: str | None = None, device: str | None = None
    ) -> tuple[Summary, ...]:
        """The run that may stand, of every submission, device and version of a task.

        All that `leaderboard.boards` needs, without reading the other runs.  `known`: the present
        task; a run of it must have all of its test cases and ranked shapes.
        """
        order = (runs.c.created_ns.desc(), runs.c.id.desc())
        place = sa.func.row_number().over(partition_by=entrant, order_by=order).label("place")
        found = _narrow(sa.select(runs.c.id, place).where(eligible), task, device).subquery()
        query = sa.select(runs).join(found, found.c.id == runs.c.id).where(found.c.place == 1)
        failed = self._failed(task, device)
        kept: list[Summary] = []
        for row in self._rows(query):
            summary = _summary(row)
            if summary is None or not _stands(summary, known, failed):
                summary = self._next_eligible(row, known, failed)
            if summary is not None:
                kept.append(summary)
        return tuple(kept)

    def place(self, run: Run, known: Task | None) -> leaderboard.Place:
        """The run's place on its board, as `known`, the present task, has it."""
        if leaderboard.ineligible(run) is not None:
            return leaderboard.NOWHERE
        rows = self.latest_eligible(known, task=run.task, device=run.device.name)
        return leaderboard.place(leaderboard.boards(rows, task=known), run.id)

    def standing(self, run: Run, known: Task | None) -> tuple[str, Standing] | None:
        """The standing of the run's submission, whichever run holds it, and on which device.

        Of the run's own device and author where there is one, else of another device; and nobody's
        runs are of the only author there is, as in `_latest_of`.
        """
        name, author = _text(run.submission.name), _text(run.submission.author)
        alone = len(self._latest_of(name)) == 1
        found = [
            (board.device, standing)
            for board in leaderboard.boards(self.latest_eligible(known, task=run.task), task=known)
            for standing in board.standings
            if standing.submission == name and (alone or standing.author == author)
        ]
        own = _text(run.device.name)
        return min(found, key=lambda f: (f[0] != own, f[1].author != author), default=None)

    def _failed(self, task: str | None, device: str | None) -> _Failed:
        """Runs that may speak against others of the same file."""
        found: _Failed = {}
        # Most that fail are of a text that never passed.
        passed = sa.select(runs.c.sha256).where(eligible).correlate(None)
        query = sa.select(runs).where(refuting, runs.c.sha256.in_(passed))
        for row in self._rows(_narrow(query, task, device)):
            found.setdefault(_file(row), []).append(row)
        return found

    def _next_eligible(
        self, broken: sa.Row[Any], known: Task | None, failed: _Failed
    ) -> Summary | None:
        """What stands of the same entrant as a row that does not, or only may."""
        same = [column == broken._mapping[column] for column in entrant]
        query = sa.select(runs).where(eligible, *same)
        rows = [s for s in self._summaries(query) if s is not None]
        gone = _refuted(rows, failed)
        sound = (s for s in rows if s.id not in gone and leaderboard.unfit(s, known) is None)
        return max(sound, key=leaderboard.precedence, default=None)

    def _summaries(self, query: sa.Select[Any]) -> Iterator[Summary | None]:
        return map(_summary, self._rows(query))

    def _rows(self, query: sa.Select[Any]) -> Iterable[sa.Row[Any]]:
        with explained(self.where), self._engine.connect() as connection:
            return connection.execute(query).all()

    def _has(self, run: str) -> bool:
        return bool(list(self._rows(sa.select(runs.c.id).where(runs.c.id == run))))


def _file(row: Summary | sa.Row[Any]) -> tuple[object, ...]:
    """What a failed run speaks against: an entrant's runs of one text."""
    return tuple(getattr(row, column.name) for column in (*entrant, runs.c.sha256))


def _refuted(rows: Sequence[Summary], failed: _Failed) -> Mapping[str, str]:
    """`leaderboard.refuted`, of runs of one entrant; reads only those failed ones that matter."""
    found = [_summary(row) for file in set(map(_file, rows)) for row in failed.get(file, ())]
    return leaderboard.refuted([*rows, *(s for s in found if s is not None)])


def _stands(newest: Summary, known: Task | None, failed: _Failed) -> bool:
    """Whether an entrant's newest row stands, so that no other need be read."""
    return (
        leaderboard.unfit(newest, known) is None
        and Doubt.UNSIGNED_IMPORT not in newest.doubts
        and newest.id not in _refuted([newest], failed)
    )


def _data(run: Run, row: dict[str, Any]) -> bytes:
    if row["score_ns"] is None:
        run = dataclasses.replace(run, score_ns=None)
    return zlib.compress(json.dumps(codec.encode(run)).encode())


def _unpacked(data: bytes) -> bytes:
    """Decompress at most MAX_RUN_BYTES.  Raises zlib.error, ValueError for more."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data, MAX_RUN_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError("it is larger than any run")
    return text


def _narrow(query: sa.Select[Any], task: str | None, device: str | None) -> sa.Select[Any]:
    if task is not None:
        query = query.where(runs.c.task == _text(task))
    return query if device is None else query.where(runs.c.device == _text(device))


def _row(run: Run) -> dict[str, Any]:
    s = leaderboard.summarise(run)
    row = {column.name: getattr(s, column.name, None) for column in runs.columns}
    row |= {name: _text(value) for name, value in row.items() if isinstance(value, str)}
    row["doubts"] = json.dumps(list(s.doubts))
    row["never_ranked"] = int(any(doubt in UNRANKED_DOUBTS for doubt in s.doubts))
    row["custom_shapes"] = int(s.custom_shapes)
    row["shapes"] = json.dumps([_pack(shape) for shape in s.shapes])
    return row


def _text(value: str) -> str:
    """Text that every database takes: no NUL (PostgreSQL), no lone surrogate (UTF-8)."""
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _pack(s: ShapeStanding) -> list[Any]:
    shape = [list(axis) for axis in s.shape.axes]
    return [shape, s.shape.light_speed_ns, s.median_ns, s.low_ns, s.high_ns, s.floor_ns]


def _unpack(packed: list[Any]) -> ShapeStanding:
    axes, *times = packed
    light, median, low, high, floor = map(_number, times)
    return ShapeStanding(Shape(tuple((n, v) for n, v in axes), light), median, low, high, floor)


def _number(value: Any) -> Any:
    if value is None or type(value) in (int, float):
        return value
    raise TypeError(f"{value!r} is no number")


def _summary(row: sa.Row[Any]) -> Summary | None:
    """The summary that a row holds, or None when a field is not what a harness writes."""
    values = dict(row._mapping)
    try:
        if any(isinstance(value, bytes) for value in values.values()):
            return None
        values.pop("never_ranked")
        values["mode"] = Mode(values["mode"])
        values["verdict"] = Verdict(values["verdict"])
        values["isolation"] = Isolation(values["isolation"])
        values["clock"] = Clock(values["clock"])
        values["doubts"] = tuple(map(Doubt, json.loads(values["doubts"])))
        values["custom_shapes"] = bool(values["custom_shapes"])
        values["shapes"] = tuple(map(_unpack, json.loads(values["shapes"])))
        values["created_ns"] = int(values["created_ns"])
        return Summary(**values)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
