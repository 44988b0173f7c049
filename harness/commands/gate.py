"""`harness gate`: fail for the right reason in CI, and only then."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.commands import options
from harness.commands.gate_files import distinct, expand, find_task, judged, refuse_links
from harness.commands.gate_line import GateCommand
from harness.commands.gate_reports import Reports, warn
from harness.gate import Gap
from harness.model import IsolationPolicy, Job, Mode, Run, Submission, Task

if TYPE_CHECKING:
    from harness.gatekeeper import Gatekeeper


@click.command("gate", cls=GateCommand)
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
    from harness.commands.gate_cache import clean_cache
    from harness.interrupts import interruptible
    from harness.task import load

    files, chosen["changed"] = _revision_of(files, chosen["changed"])
    if not files:
        raise click.UsageError("Missing argument 'FILE...'.", click.get_current_context())
    paths = expand(files)
    root = find_task(chosen["problem"], paths)
    workspace = os.environ.get("GITHUB_WORKSPACE")
    refuse_links(paths, root, workspace)
    paths = distinct(paths)
    reports = Reports(
        junit=chosen["junit"],
        markdown=chosen["markdown"],
        github=_on_github() if chosen["github"] is None else chosen["github"],
        as_json=chosen["as_json"],
    )
    baseline = [Path(chosen["baseline"])] if chosen["baseline"] else []
    reports.refuse_targets([*paths, *baseline], root)
    task = load(root)
    paths, unchanged = judged(paths, root, chosen["changed"])
    with clean_cache(root=root, paths=paths, workspace=workspace):
        gatekeeper, right, submissions = _prepare(task, root, paths, chosen)
        with reports.proven_writable(), interruptible():
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


def _prepare(
    task: Task, root: Path, paths: Sequence[Path], chosen: dict[str, Any]
) -> tuple[Gatekeeper, Submission, list[Submission]]:
    """Read all that the gate was named: who judges, its right control, the submissions."""
    from harness import gate_controls
    from harness.baseline import find_baseline
    from harness.commands import run
    from harness.commands.gate_cache import kept_verdicts
    from harness.devices import present
    from harness.environment import cuda_home
    from harness.gatekeeper import Conditions, Gatekeeper
    from harness.render import gate as view
    from harness.sources import read_submission
    from harness.verdict_cache import machine_facts

    right = gate_controls.right_control(root)
    cache = None
    if not chosen["no_cache"]:
        workspace = os.environ.get("GITHUB_WORKSPACE")
        cache = kept_verdicts(chosen["cache"], root=root, paths=paths, workspace=workspace)
    submissions = [read_submission(path, None) for path in paths]
    baseline = find_baseline(chosen["baseline"], task) if chosen["baseline"] else None
    timeout = chosen["timeout"]
    conditions = Conditions(
        # As the machine calls it, so that a verdict is found again under whatever name it was
        # asked by: auto is cuda:0 or cpu.
        device=present.resolve(chosen["device"]),
        isolation=IsolationPolicy(chosen["isolation"]),
        timeout_ns=None if timeout is None else round(timeout * 1e9),
        allowed=tuple(Gap(name) for name in chosen["allowed"]),
        strict=chosen["strict"],
        max_percent=chosen["max_percent"],
        speed_budget_ns=round(chosen["budget"] * 1e9),
    )

    def judge(job: Job, label: str) -> Run:
        # A line of a log that begins with the name of a file could be a command to GitHub.
        brief = job.mode is Mode.BENCHMARK  # one of a dozen for each comparison
        return run.judge(job, f"gate: {view.defused(label)}", quiet=chosen["quiet"], brief=brief)

    facts = (*machine_facts(os.environ, cuda_home()), ("controls", gate_controls.digest(root)))
    gatekeeper = Gatekeeper(
        task, conditions, judge, cache=cache, facts=facts, baseline=baseline, warn=warn
    )
    return gatekeeper, right, submissions


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"
