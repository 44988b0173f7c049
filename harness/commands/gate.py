"""`harness gate`: fail for the right reason in CI, and only then."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness import machine
from harness.commands import options
from harness.errors import HarnessError, UsageError
from harness.gate import Gap, GateReport
from harness.model import IsolationPolicy, Job, Run, Task

#: GitHub refuses a comment above 65,536 characters.
COMMENT_BYTES = 65_000
#: With --changed, a change of one of these re-judges everything.
_TASK_PARTS = ("task", "reference", "shapes.yaml", "controls")


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
    task = load(root)
    reports = _Reports(
        junit=chosen["junit"],
        markdown=chosen["markdown"],
        github=_on_github() if chosen["github"] is None else chosen["github"],
        as_json=chosen["as_json"],
    )
    reports.refuse_unwritable()
    paths, unchanged = _changed(paths, root, chosen["changed"])
    report = _judge(task, root, paths, unchanged, chosen)
    reports.write(report)
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
        matches = [name] if os.path.lexists(name) or not glob.has_magic(name) else glob.glob(name)
        if not matches:
            raise UsageError(f"{name}: no file matches, so nothing would be verified")
        found += map(Path, sorted(matches))
    return list(dict.fromkeys(found))


def _changed(
    paths: Sequence[Path], root: Path, revision: str | None
) -> tuple[list[Path], tuple[str, ...]]:
    """The files to judge, and those that --changed leaves out."""
    if revision is None:
        return list(paths), ()
    import harness
    from harness.revision import repository

    where = repository(root)
    touched = where.changed_since(where.commit(revision or _base_revision()))
    ours = [root / part for part in _TASK_PARTS] + [Path(harness.__file__).resolve().parent]
    if any(path == part or part in path.parents for path in touched for part in ours):
        return list(paths), ()
    kept = [path for path in paths if path.resolve() in touched or not path.exists()]
    return kept, tuple(str(path) for path in paths if path not in kept)


def _base_revision() -> str:
    """What a pull request would be merged into; without one, what was committed last."""
    base = os.environ.get("GITHUB_BASE_REF", "")
    return f"origin/{base}" if base else "HEAD"


def _judge(
    task: Task,
    root: Path,
    paths: Sequence[Path],
    unchanged: tuple[str, ...],
    chosen: dict[str, Any],
) -> GateReport:
    from harness import gate_controls
    from harness.baseline import find_baseline
    from harness.commands import run
    from harness.gatekeeper import Conditions, Gatekeeper
    from harness.render import gate as view
    from harness.sources import read_submission
    from harness.verdict_cache import VerdictCache, machine_facts

    right = gate_controls.right_control(root)
    kept = chosen["cache"] or machine.cache_folder() / "verdicts"
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

    gatekeeper = Gatekeeper(
        task,
        conditions,
        judge,
        cache=None if chosen["no_cache"] else VerdictCache(kept),
        facts=(*machine_facts(os.environ), ("controls", gate_controls.digest(root))),
        baseline=baseline,
        warn=_warn,
    )
    return gatekeeper.run(right, submissions, unchanged)


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _warn(line: str) -> None:
    print(f"harness: warning: {line}".encode("ascii", "backslashreplace").decode(), file=sys.stderr)


@dataclass(frozen=True, slots=True)
class _Reports:
    """Where a gate's findings go."""

    junit: Path | None
    markdown: Path | None
    github: bool
    as_json: bool

    def refuse_unwritable(self) -> None:
        """Before an hour of judging whose report could not be written."""
        for option, path in (("--junit", self.junit), ("--markdown", self.markdown)):
            if path is None:
                continue
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb"):
                    pass  # and what an earlier gate reported is gone, whatever comes
            except OSError as error:
                raise UsageError(f"{option} {path}: cannot be written ({error.strerror})") from None

    def write(self, report: GateReport) -> None:
        """Every report that was asked for; the screen's comes last, so its end is the verdict."""
        from harness.render import gate as view
        from harness.render import github

        if self.junit is not None:
            from harness.render.junit import junit

            _write(self.junit, junit(report))
        if self.markdown is not None:
            _write(self.markdown, github.summary(report, limit=COMMENT_BYTES))
        if self.as_json:
            from harness.render import export

            options.say(export.dumps(view.gate_document(report)) + "\n")
        else:
            console = options.console()
            console.print(view.gate_view(report, options.signs(console)))
        if self.github:
            _append_summary(report)
            # The runner reads commands on both streams; with --json, stdout is the document's.
            stream = sys.stderr if self.as_json else sys.stdout
            for line in github.workflow_commands(report, _from_workspace):
                print(line.encode("ascii", "backslashreplace").decode(), file=stream)


def _write(path: Path, document: str) -> None:
    try:
        path.write_text(document, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise HarnessError(f"{path}: cannot be written ({error.strerror})") from None


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
