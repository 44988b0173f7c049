"""`harness gate`: fail for the right reason in CI, and only then."""

from __future__ import annotations

import contextlib
import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from harness import machine
from harness.commands import options
from harness.errors import HarnessError, UsageError
from harness.gate import Gap, GateReport
from harness.model import IsolationPolicy, Job, Run, Submission, Task

if TYPE_CHECKING:
    from harness.gatekeeper import Gatekeeper
    from harness.verdict_cache import VerdictCache

#: GitHub refuses a comment above 65,536 characters.
COMMENT_BYTES = 65_000
#: With --changed, a change of one of these re-judges everything.
_TASK_PARTS = ("task", "reference", "shapes.yaml", "controls")
#: Where no report may be written: the task's folders that hold what decides a verdict.
_TASK_FOLDERS = ("task", "reference", "controls")


@click.command("gate")
@click.argument("files", nargs=-1, metavar="FILE...")
@options.device_option
@click.option("--timeout", type=options.Finite(1, 86400), metavar="S", help="Seconds for a run.")
@options.isolation_option
@click.option(
    "--allow-unverified", "allowed", multiple=True,
    type=click.Choice([gap.value for gap in Gap]),
    help="Let this kind through, and say so (repeatable).",
)  # fmt: skip
@click.option(
    "--changed", is_flag=False, flag_value="", metavar="[REV]",
    help="Only what changed since REV (default: the pull request's base, else HEAD).",
)  # fmt: skip
@click.option("--baseline", metavar="FILE|BUNDLE|REV", help="Also compare its time with this.")
@click.option(
    "--max-slowdown", "max_percent", type=options.Finite(0, 1000), default=2.0,
    show_default=True, metavar="PCT", help="How much slower than the baseline passes.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="A time that stays ambiguous fails.")
@click.option(
    "--budget", type=options.Finite(1, 86400), default=600.0, show_default=True, metavar="S",
    help="Seconds to compare one submission's time; two pairs at least.",
)  # fmt: skip
@click.option("--cache", type=click.Path(path_type=Path), metavar="DIR", help="Kept verdicts.")
@click.option("--no-cache", is_flag=True, help="Judge again what was judged before.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="JUnit XML report.")
@click.option(
    "--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Report for a comment."
)
@click.option(
    "--github/--no-github", default=None,
    help="Annotations and job summary (default: where GITHUB_ACTIONS is set).",
)  # fmt: skip
@options.quiet_option
@options.json_option
@options.problem_option
def command(files: Sequence[str], **chosen: Any) -> int:
    """Check that each FILE is right on every test case, and with --baseline no slower than before.

    Controls run first: a right submission must pass here and a wrong one fail.  What is missing or
    cannot run here is not verified, and fails unless --allow-unverified names its kind.

    Exit code: 0 all verified, 1 some submission is not, 2 usage, 3 the machine failed.
    """
    from harness.task import find_root, load

    files, chosen["changed"] = _revision_of(files, chosen["changed"])
    if not files:
        raise click.UsageError("Missing argument 'FILE...'.", click.get_current_context())
    paths = _expand(files)
    root = find_root(chosen["problem"], Path.cwd(), paths[0])
    _refuse_links(paths, root)
    paths = _distinct(paths)
    reports = _Reports(
        junit=chosen["junit"],
        markdown=chosen["markdown"],
        github=_on_github() if chosen["github"] is None else chosen["github"],
        as_json=chosen["as_json"],
    )
    baseline = [Path(chosen["baseline"])] if chosen["baseline"] else []
    reports.refuse_inputs([*paths, *baseline], root)
    task = load(root)
    paths, unchanged = _changed(paths, root, chosen["changed"])
    gatekeeper, right, submissions = _prepare(task, root, paths, chosen)
    with reports.proven_writable():
        report = gatekeeper.run(right, submissions, unchanged)
        reports.write(report)
    if report.interrupted:
        raise KeyboardInterrupt
    return report.exit_code


def _revision_of(files: Sequence[str], changed: str | None) -> tuple[tuple[str, ...], str | None]:
    """`--changed FILE ...`: REV was left out, and what stands there is the first file."""
    if changed and changed.endswith(".py"):
        return (changed, *files), ""
    return tuple(files), changed


def _expand(files: Sequence[str]) -> list[Path]:
    """Files as named, patterns that no shell expanded as they match; nothing found is an error."""
    found: list[Path] = []
    for name in files:
        known = os.path.lexists(name) or not glob.has_magic(name)
        matches = [name] if known else glob.glob(name, recursive=True)
        if not matches:
            raise UsageError(f"{name}: no file matches, so nothing would be verified")
        found += map(Path, sorted(matches))
    return found


def _refuse_links(paths: Sequence[Path], root: Path) -> None:
    """Refuse links that a submission's author may have made.

    Through one, a report would quote any file that we can read, and a submission could be compared
    with itself.  How the task's folder is reached is its owner's choice.
    """
    for path in paths:
        whole = Path.cwd() / path
        for step in (whole, *whole.parents):
            if not step.is_symlink():
                continue
            lies_in = step.parent.resolve()
            if step == whole or root in (lies_in, *lies_in.parents):
                what = "is a link" if step == whole else f"lies behind {step}, which is a link"
                raise UsageError(f"{path}: {what}; the gate judges files: name what it points to")


def _distinct(paths: Sequence[Path]) -> list[Path]:
    """Each file once, under the first path that it was given by."""
    first: dict[Path, Path] = {}
    for path in paths:
        first.setdefault(_real(path), path)
    return list(first.values())


def _real(path: Path) -> Path:
    """Where a path leads; a loop of links is no error, as it is for Path.resolve."""
    return Path(os.path.realpath(path))


def _changed(
    paths: Sequence[Path], root: Path, revision: str | None
) -> tuple[list[Path], tuple[str, ...]]:
    """The files to judge, and those that --changed leaves out: git has them, and as they were."""
    if revision is None:
        return list(paths), ()
    from harness.revision import repository

    where = repository(root)
    touched = where.changed_since(where.commit(revision or _base_revision()))
    tracked = where.tracked()
    if _task_changed(root, touched, tracked):
        return list(paths), ()
    kept = [path for path in paths if _real(path) in touched or _real(path) not in tracked]
    return kept, tuple(str(path) for path in paths if path not in kept)


def _task_changed(root: Path, touched: frozenset[Path], tracked: frozenset[Path]) -> bool:
    """Whether the task or the harness may have changed, also behind links.

    A file of the task that git does not watch, ignored or in another repository, may have.
    """
    import harness
    from harness import task

    read = [*task.parts(root), root / "controls", *(root / "controls").glob("*.py")]
    links = {_real(path.parent) / path.name for path in read if path.is_symlink()}
    if not tracked >= links | {_real(path) for path in read if path.is_file()}:
        return True
    ours = links | {_real(path) for path in read} | {root / part for part in _TASK_PARTS}
    ours.add(Path(harness.__file__).resolve().parent)
    return any(path in ours or not ours.isdisjoint(path.parents) for path in touched)


def _base_revision() -> str:
    """What a pull request would be merged into; without one, what was committed last."""
    base = os.environ.get("GITHUB_BASE_REF", "")
    return f"origin/{base}" if base else "HEAD"


def _prepare(
    task: Task, root: Path, paths: Sequence[Path], chosen: dict[str, Any]
) -> tuple[Gatekeeper, Submission, list[Submission]]:
    """Read all that the gate was named: who judges, its right control, the submissions."""
    from harness import gate_controls
    from harness.baseline import find_baseline
    from harness.commands import run
    from harness.environment import cuda_home
    from harness.gatekeeper import Conditions, Gatekeeper
    from harness.render import gate as view
    from harness.sources import read_submission
    from harness.verdict_cache import machine_facts

    right = gate_controls.right_control(root)
    cache = _cache(chosen)
    submissions = [read_submission(path, None) for path in paths]
    baseline = find_baseline(chosen["baseline"], task) if chosen["baseline"] else None
    timeout = chosen["timeout"]
    conditions = Conditions(
        device=chosen["device"],
        isolation=IsolationPolicy(chosen["isolation"]),
        timeout_ns=None if timeout is None else round(timeout * 1e9),
        allowed=tuple(Gap(name) for name in chosen["allowed"]),
        strict=chosen["strict"],
        max_percent=chosen["max_percent"],
        speed_budget_ns=round(chosen["budget"] * 1e9),
    )

    def judge(job: Job, label: str) -> Run:
        # A line of a log that begins with the name of a file could be a command to GitHub.
        return run.judge(job, f"gate: {view.defused(label)}", quiet=chosen["quiet"])

    facts = (*machine_facts(os.environ, cuda_home()), ("controls", gate_controls.digest(root)))
    gatekeeper = Gatekeeper(
        task, conditions, judge, cache=cache, facts=facts, baseline=baseline, warn=_warn
    )
    return gatekeeper, right, submissions


def _cache(chosen: dict[str, Any]) -> VerdictCache | None:
    from harness.verdict_cache import VerdictCache

    folder: Path | None = chosen["cache"]
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UsageError(f"--cache {folder}: is not a folder")
    if chosen["no_cache"]:
        return None
    return VerdictCache(folder or machine.cache_folder() / "verdicts")


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _warn(line: str) -> None:
    from harness.render.gate import defused
    from harness.render.text import plain

    print(defused(plain(f"harness: warning: {line}", "ascii")), file=sys.stderr)


@dataclass(frozen=True, slots=True)
class _Reports:
    """Where a gate's findings go."""

    junit: Path | None
    markdown: Path | None
    github: bool
    as_json: bool

    def _files(self) -> list[tuple[str, Path]]:
        given = (("--junit", self.junit), ("--markdown", self.markdown))
        return [(option, path) for option, path in given if path is not None]

    def refuse_inputs(self, inputs: Sequence[Path], root: Path) -> None:
        """Before anything is opened for writing: a shell makes two paths of `--junit s/*.py`."""
        taken = [*inputs, root / "shapes.yaml"]
        for option, path in self._files():
            real = _real(path)
            ours = any(_real(root / name) in (real, *real.parents) for name in _TASK_FOLDERS)
            if ours or ".py" in (path.suffix, real.suffix) or any(_same(path, t) for t in taken):
                raise UsageError(
                    f"{option} {path}: a report would overwrite what the gate reads, or the other "
                    "report; name another file"
                )
            taken.append(path)

    @contextlib.contextmanager
    def proven_writable(self) -> Iterator[None]:
        """Before an hour of judging whose report could not be written.  Raises UsageError.

        An earlier report stays until the new one is written, and an empty file never does.
        """
        made: list[Path] = []
        try:
            for option, path in self._files():
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    new = not path.exists()
                    with path.open("ab"):
                        made += [_real(path)] if new else []
                except OSError as error:
                    reason = f"cannot be written ({error.strerror})"
                    raise UsageError(f"{option} {path}: {reason}") from None
            yield
        finally:
            for path in made:
                with contextlib.suppress(OSError):
                    if path.stat().st_size == 0:
                        path.unlink()

    def write(self, report: GateReport) -> None:
        """All that was asked for, the screen first.  Raises HarnessError after the last.

        One output that cannot be written takes no other with it.
        """
        from harness.render import github
        from harness.render.junit import junit

        failed: list[str] = []
        with _noting("stdout", failed):
            self._show(report)
        if self.github:
            with _noting("the annotations", failed):
                _annotate(report, sys.stderr if self.as_json else sys.stdout)
        for option, path in self._files():
            with _noting(f"{option} {path}", failed):
                made = (
                    junit(report)
                    if option == "--junit"
                    else github.summary(report, limit=COMMENT_BYTES)
                )
                path.write_text(made, encoding="utf-8", errors="backslashreplace")
        if failed:
            raise HarnessError("\n".join(failed))

    def _show(self, report: GateReport) -> None:
        from harness.render import gate as view

        if self.as_json:
            options.say(view.gate_json(report))
        else:
            console = options.console()
            console.print(view.gate_view(report, options.signs(console)))
        sys.stdout.flush()


@contextlib.contextmanager
def _noting(name: str, failed: list[str]) -> Iterator[None]:
    """Add what kept an output from being written to a list, and go on."""
    try:
        yield
    except OSError as error:
        failed.append(f"{name}: cannot be written ({error.strerror or error})")


def _same(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file, be it through links or by two names on the disk."""
    try:
        return _real(path) == _real(other) or path.samefile(other)
    except OSError:
        return False


def _annotate(report: GateReport, stream: TextIO) -> None:
    """The job summary and the workflow commands.

    The runner reads commands on both streams; with --json, stdout is the document's.
    """
    from harness.render import github

    _append_summary(report)
    for line in github.workflow_commands(report, _from_workspace):
        print(line.encode("ascii", "backslashreplace").decode(), file=stream)
    stream.flush()


def _append_summary(report: GateReport) -> None:
    """Add to the job summary; where it cannot be written, the verdict stands all the same."""
    from harness.render import github

    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    try:
        path = Path(name)
        there = path.stat().st_size if path.exists() else 0
        text = github.summary(report, limit=max(0, github.MAX_SUMMARY_BYTES - there))
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        _warn(f"GITHUB_STEP_SUMMARY {name}: cannot be written ({error.strerror})")


def _from_workspace(path: str) -> str:
    """A path below the repository's top, as annotations need it."""
    return os.path.relpath(Path(path).resolve(), os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
