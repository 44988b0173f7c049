"""`harness leaderboard --confirm N`: the fastest entries once more, and what came of it."""

from __future__ import annotations

from pathlib import Path

import click

from harness import confirm as confirmations
from harness import leaderboard
from harness.commands.run import judge, keep
from harness.errors import UsageError
from harness.interrupts import interruptible
from harness.model import Board, Job, Mode, Run, Standing, Verdict
from harness.render import text
from harness.sources import require_source
from harness.store import Store, open_store
from harness.task import load


def confirm(url: str, root: Path | None, device: str | None, count: int) -> bool:
    """Measure the first `count` entries of a board again and store the fresh runs.

    Returns whether all of them passed.  Raises UsageError when it is not clear which board is
    meant, or when it is another machine's.
    """
    if root is None:
        raise UsageError("--confirm needs the task; call it in its folder or use --problem DIR")
    with open_store(url, create=True) as store:
        board = _board(store, root, device)
        chosen = sorted(board.standings, key=lambda s: s.score_ns)[:count]
        old = [store.get(standing.run) for standing in chosen]
        for run in old:
            require_source(run.submission)
    passed = True
    fresh = confirmations.measure(lambda i, mode: _run(root, board, old[i], mode), len(old))
    with interruptible(keeps=True):
        for i, run in fresh:
            # At once: what breaks or ends the rest does not lose it.
            keep(url, run, root)
            click.echo(_said(chosen[i], run), err=True)
            passed = passed and run.verdict is Verdict.PASSED
    return passed


def _board(store: Store, root: Path, device: str | None) -> Board:
    task = load(root)
    found = leaderboard.boards(
        store.latest_eligible(task, task=task.name, device=device), task=task
    )
    found = tuple(board for board in found if board.standings)
    if not found:
        raise UsageError("--confirm: nothing is ranked on this board; `harness run` ranks")
    if len(found) > 1:
        names = ", ".join(text.plain(board.device) for board in found)
        raise UsageError(f"--confirm: say which board with --device: {names}")
    return found[0]


def _run(root: Path, board: Board, old: Run, mode: Mode) -> Run:
    kind = old.device.kind
    job = Job(
        task_root=str(root),
        submission=old.submission,
        device=kind,
        mode=mode,
        processes=confirmations.PROCESSES if kind == "cuda" else 1,
        observe=mode is Mode.RANKED,
    )
    run = judge(job, f"{old.submission.name} ({mode})", quiet=False, brief=True)
    if run.device.name != board.device:
        raise UsageError(
            f"--confirm: the board is of {text.plain(board.device)}, this machine has "
            f"{text.plain(run.device.name)}; nothing was stored"
        )
    return run


def _said(standing: Standing, run: Run) -> str:
    name = text.plain(standing.submission)
    if run.verdict is not Verdict.PASSED or run.score_ns is None:
        gone = leaderboard.refutes(leaderboard.summarise(run))
        what = "has no standing any more" if gone else "stands"
        return f"{name}: {run.verdict}: {text.plain(run.message)}; its earlier run {what}"
    change = 100 * (run.score_ns / standing.score_ns - 1)
    before, now = text.durations([standing.score_ns, run.score_ns])
    return f"{name}: {before}, confirmed {now} ({change:+.2f}%)"
