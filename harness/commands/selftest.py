"""`harness selftest`: is this machine fit to rank: its clock, and controls judged right."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from harness import pool
from harness.commands import options
from harness.model import IsolationPolicy, Job, Mode, Submission, Verdict
from harness.render.progress import live_progress
from harness.selftest_values import SelfTestReport
from harness.sources import read_submission
from harness.task import find_root

#: Packaged submissions for a task of our own, and what must become of each.
CONTROLS = {
    "right": {Verdict.PASSED},
    "wrong": {Verdict.WRONG_ANSWER},
    "lying_clock": {Verdict.PASSED, Verdict.TAMPERED},
    "early_done": {Verdict.PROTOCOL_ERROR, Verdict.TAMPERED, Verdict.NONFINITE},
    "cached": {Verdict.WRONG_ANSWER},
    "exits": {Verdict.CRASHED},
}
_FOLDER = Path(__file__).resolve().parent.parent / "controls"


@click.command("selftest")
@options.device_option
@options.quiet_option
@options.json_option
@options.problem_option
def command(device: str, quiet: bool, as_json: bool, problem: Path | None) -> int:
    """Read kernels of known length and judge controls, on this machine.

    Exit code 0 when every claim holds; 1 when one does not: then no rank from here can be trusted.
    """
    root = find_root(problem, Path.cwd(), None)
    with live_progress(sys.stderr, os.environ, "selftest", quiet=quiet) as report:
        job = _job(root, Submission("selftest", "", "selftest", "", ""), device, Mode.BENCHMARK)
        clock = pool.carry_out("selftest", job, report, SelfTestReport)
        judged = {}
        for name in CONTROLS:
            source = read_submission(_FOLDER / f"{name}.py", None)
            run = pool.run_job(_job(_FOLDER / "task_root", source, device, Mode.BENCHMARK), report)
            judged[name] = run
    wrong = [name for name, run in judged.items() if run.verdict not in CONTROLS[name]]
    if as_json:
        from harness import codec
        from harness.render import export

        controls = {name: run.verdict.value for name, run in judged.items()}
        document = {
            "schema": 1,
            "selftest": codec.encode(clock),
            "controls": controls,
            "ok": clock.ok and not wrong,
        }
        options.say(export.dumps(document) + "\n")
    else:
        from harness.render.reports import controls_view, selftest_view

        console = options.console()
        signs = options.signs(console)
        console.print(controls_view(judged, CONTROLS, signs))
        console.print(selftest_view(clock, signs))
    return 0 if clock.ok and not wrong else 1


def _job(root: Path, submission: Submission, device: str, mode: Mode) -> Job:
    return Job(
        task_root=str(root),
        submission=submission,
        device=device,
        mode=mode,
        processes=1,
        budget_ns=2_000_000_000,
        isolation=IsolationPolicy.AUTO,
    )
