"""What a submission is compared with: one file, its own file at a git revision, or a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness import bundle
from harness.errors import UsageError
from harness.model import Run, Shape, Submission, Task, Verdict
from harness.revision import Repository, repository
from harness.sources import read_submission, submission_of
from harness.task import FILE


@dataclass(frozen=True, slots=True)
class Baseline:
    """Where the other side of a comparison comes from; exactly one of the three is there."""

    label: str
    file: Submission | None = None
    at: tuple[Repository, str] | None = None  # its own file at this commit
    bundle: Mapping[str, Submission] = field(default_factory=dict)  # by name
    shapes: tuple[Shape, ...] = ()  # what was ranked then; nothing of it may be missing now
    taskless: bool = False  # the commit has no shapes.yaml: what was ranked then is not known

    def of(self, submission: Submission) -> Submission | None:
        """The other side, or None where there was none: a submission that is new.

        Raises UsageError for what is no submission, HarnessError for what git cannot read.
        """
        if self.file is not None:
            return self.file
        if self.at is None:
            return self.bundle.get(submission.name)
        where, commit = self.at
        raw = where.read(commit, Path(submission.path))
        if raw is None:
            return None
        path = Path(f"{submission.path}@{commit[:10]}")
        return submission_of(path.with_suffix(".py"), raw, submission.author)

    def lost_shapes(self, task: Task) -> tuple[Shape, ...]:
        """Shapes that the baseline has and the task no longer ranks."""
        return tuple(shape for shape in self.shapes if shape not in task.ranked)


def find_baseline(text: str, task: Task) -> Baseline:
    """Read `--baseline`: a file NAME.py, a bundle of `harness export`, or a git revision.

    Raises UsageError when it is none of them, empty, unreadable, or a file and a revision at once.
    """
    path = Path(text)
    _refuse_both(text, path, Path(task.root))
    if path.suffix == ".py":
        return Baseline(path.name, file=read_submission(path, None))
    if path.exists() and not path.is_dir():
        return _bundle(path, task)
    root = Path(task.root)
    where = repository(root)
    commit = where.commit(text)
    raw = where.read(commit, root / FILE)
    if raw is None:
        return Baseline(text, at=(where, commit), taskless=True)
    return Baseline(text, at=(where, commit), shapes=_ranked(raw, f"{text}:{FILE}"))


def _refuse_both(text: str, path: Path, root: Path) -> None:
    """Refuse what names a file and a revision: who adds a file `main` would choose his baseline."""
    if not path.exists() or path.is_dir():  # a folder may have the name of a branch
        return
    try:
        where = repository(root)
    except UsageError:
        return  # without a repository there is no revision
    if names := where.names(text):
        # What ends in .py is a file to us, be it a branch's name.
        revision = next(n for n in names if n != text and not n.endswith(".py"))
        raise UsageError(
            f"--baseline {text}: is a file and a revision of git; say ./{path} for the file, or "
            f"{revision} for the revision"
        )


def _ranked(raw: bytes, name: str) -> tuple[Shape, ...]:
    """The ranked shapes of an older shapes.yaml."""
    try:
        document: dict[str, Any] = yaml.safe_load(raw)
        axes = [str(axis) for axis in document["axes"]]
        return tuple(
            Shape(tuple((axis, int(row[axis])) for axis in axes)) for row in document["ranked"]
        )
    except RecursionError:
        raise UsageError(f"{name}: its ranked shapes cannot be read (nested too deeply)") from None
    except (yaml.YAMLError, LookupError, TypeError, ArithmeticError, ValueError) as error:
        raise UsageError(f"{name}: its ranked shapes cannot be read ({error})") from None


def _bundle(path: Path, task: Task) -> Baseline:
    """The submissions of a bundle by name, as its latest runs have them, and what was ranked."""
    try:
        data = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if not data.strip():
        raise UsageError(f"{path}: is empty or no file, so nothing could be compared with it")
    held = [run for run in bundle.loads(data, str(path)).runs if run.task == task.name]
    runs = [run for run in held if run.verdict is Verdict.PASSED and bundle.has_its_source(run)]
    if held and not runs:
        raise UsageError(
            f"{path}: no run in it passed with the source that its sha256 names; "
            "`harness verify` says more"
        )
    runs.sort(key=lambda run: run.created_ns)
    with_source = {run.submission.name: run.submission for run in runs if run.submission.source}
    if not with_source:
        raise UsageError(
            f"{path}: holds no source of a submission to {task.name}, and both sides are timed "
            "here; export it without --without-source"
        )
    return Baseline(path.name, bundle=with_source, shapes=_timed(runs))


def _timed(runs: Sequence[Run]) -> tuple[Shape, ...]:
    """The shapes that the newest version of the task in these runs ranked, oldest run first."""
    ranked = [run for run in runs if not run.custom_shapes]
    newest = [run for run in ranked if run.task_digest == ranked[-1].task_digest]
    timed = [case.case.shape for run in newest for case in run.cases if case.timing is not None]
    return tuple(dict.fromkeys(timed))
