"""`harness profile`: kernels, times, bytes, share of the roofline; a chrome trace; ncu."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from harness import pool
from harness.commands import options
from harness.model import IsolationPolicy, Job, Mode
from harness.profile_values import ProfileReport
from harness.render.progress import live_progress
from harness.sources import read_submission
from harness.task import find_root, load, parse_shapes


@click.command("profile")
@click.argument("file", type=click.Path(path_type=Path))
@options.device_option
@options.shapes_option("Profile", "the ranked ones (repeatable)")
@options.quiet_option
@options.json_option
@options.problem_option
def command(
    file: Path,
    device: str,
    shapes: tuple[str, ...],
    quiet: bool,
    as_json: bool,
    problem: Path | None,
) -> int:
    """Show what FILE's calls do on the ranked shapes, as torch's profiler (CUPTI) sees them.

    Not a ranked time: the profiler slows launches down, and its word is the submission's.
    """
    root = find_root(problem, Path.cwd(), file)
    task = load(root)
    job = Job(
        task_root=str(root),
        submission=read_submission(file, None),
        device=device,
        mode=Mode.BENCHMARK,
        shapes=parse_shapes(shapes, task),
        isolation=IsolationPolicy.AUTO,
    )
    with live_progress(sys.stderr, os.environ, job.submission.name, quiet=quiet) as report:
        found = pool.carry_out("profile", job, report, ProfileReport)
    if as_json:
        from harness import codec
        from harness.render import export

        options.say(export.dumps({"schema": 1, "profile": codec.encode(found)}) + "\n")
    else:
        from harness.render.reports import profile_view

        console = options.console()
        console.print(profile_view(found, options.signs(console)))
        lost = [shape.shape.label for shape in found.shapes if shape.trace is None]
        if lost:
            folder = root / "results" / "profiles" / job.submission.name
            said = f"No trace of {', '.join(lost)}: it could not be kept in {folder}."
            console.print(said, markup=False, highlight=False)
        if found.device.kind == "cuda" and found.failed is None:
            console.print(_ncu(file), markup=False, highlight=False)
    return 0 if found.failed is None else 1


def _ncu(file: Path) -> str:
    """How to go on with Nsight Compute, which needs the submission in its own process."""
    if shutil.which("ncu") is None:
        return "For stalls and bandwidth per kernel install Nsight Compute (ncu)."
    return (
        "For stalls and bandwidth per kernel: ncu --set full --clock-control none "
        f"python -m harness.call {file}   (runs it unconfined: only your own code)"
    )
