"""Progress on stderr while a judge works: one live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from harness import progress
from harness.render.terminal import make_console
from harness.render.text import Marks, duration, marks, plain

Report = Callable[[progress.Progress], None]


@contextlib.contextmanager
def live_progress(
    stream: TextIO, env: Mapping[str, str], label: str, *, quiet: bool, brief: bool = False
) -> Iterator[Report]:
    """Yield what a judge's progress is given to; nothing is left on a terminal afterwards.

    `brief`: one of many runs, to which a log gives one line instead of one for each stage.
    """
    if quiet:
        yield lambda step: None
        return
    console = make_console(stream, env)
    name = plain(label, console.encoding)
    if not console.is_terminal:
        yield _one_line(stream, name) if brief else _stage_lines(stream, name)
        return
    signs = marks(console.encoding)
    bar = Progress(
        SpinnerColumn("dots" if console.encoding == "utf-8" else "line"),
        TextColumn("{task.fields[name]}", markup=False),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with bar:
        line = bar.add_task("starting", total=None, name=name, detail="")

        def report(step: progress.Progress) -> None:
            bar.update(
                line,
                description=f"{step.stage} {step.subject}".strip(),
                completed=step.done,
                total=step.total,
                detail=_detail(step, signs),
            )

        yield report


def _detail(step: progress.Progress, signs: Marks) -> str:
    parts = []
    if step.total is not None:
        parts.append(f"{step.done}/{step.total}")
    if step.process is not None and step.processes is not None and step.processes > 1:
        parts.append(f"process {step.process}/{step.processes}")
    if step.latest_ns is not None:
        parts.append(duration(step.latest_ns, signs))
    if step.left_ns is not None:
        parts.append(f"{step.left_ns / 1e9:.0f} s left")
    return ", ".join(parts)


def _stage_lines(stream: TextIO, name: str) -> Report:
    """For logs: one line when the stage changes, so that a waiting reader knows why."""
    last = [""]

    def report(step: progress.Progress) -> None:
        subject = step.subject if step.stage in ("timing", "waiting for") else ""
        text = f"{name}: {step.stage} {subject}".rstrip()
        if text != last[0]:
            last[0] = text
            print(text, file=stream, flush=True)

    return report


def _one_line(stream: TextIO, name: str) -> Report:
    print(name, file=stream, flush=True)
    return lambda step: None
