"""One run on a terminal: what became of it, where it failed, its times, and how sure they are.

Text of a submission is shown, never interpreted: it goes through text.plain into Text objects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness import leaderboard, samples
from harness.model import (
    CaseKind,
    CaseResult,
    Failed,
    Mode,
    Run,
    ShapeStanding,
    Timing,
    Verdict,
    alike,
    reached,
)
from harness.render import text, words
from harness.render.console import make_console
from harness.render.table import Cell, Column, Fitted
from harness.render.text import Marks, plain

__all__ = ["make_console", "run_view", "tally"]

#: Cases that failed, in the short view.
FAILURES_SHOWN = 3

#: Lines of a log that are shown from its beginning and from its end, of a run in full and in short.
LOG_LINES = 20
LOG_LINES_BRIEF = 3
#: A longer line of a log is shown without its middle.
LINE_CHARS = 200

_TRACEBACK = "Traceback (most recent call last):"
#: log.py's note in place of what it dropped.
_LEFT_OUT = re.compile(r"\[\.\.\. \d+ bytes left out \.\.\.\]")


def run_view(
    run: Run,
    *,
    signs: Marks,
    place: leaderboard.Place = leaderboard.NOWHERE,
    full: bool = False,
    stored: bool = True,
    by_author: bool = False,
) -> RenderableType:
    """A run for people: verdict, failures, times, doubts, one closing sentence.

    `by_author` names the author beside the submission, as a namesake on the board does: for runs of
    one name.  `full` adds the samples' distribution and, below the doubts, every case, the
    environment and the log's ends, which `harness show` has of what is `stored`.
    """
    parts: list[RenderableType] = [_headline(run, signs), *_failures(run, signs, full, stored)]
    timed = [c for c in run.cases if c.case.kind is CaseKind.BENCHMARK and c.timing is not None]
    if timed:
        parts += ["", _times(run, timed, signs)]
    if timed and full:
        parts += _histograms(run, timed, signs)
    parts += _remarks(run, signs)
    if full:
        parts += _passed(run, signs)
    parts += _background(run, signs) if full else _log_hint(run, signs, stored)
    parts += ["", _sentence(run, signs, place, by_author or place.has_namesake)]
    return Group(*parts)


def tally(runs: Sequence[Run]) -> str:
    """What became of several runs, in one line: `2 passed, 3 failed, 1 unsupported`."""
    passed = sum(run.verdict is Verdict.PASSED for run in runs)
    unsupported = sum(run.verdict is Verdict.UNSUPPORTED for run in runs)
    failed = len(runs) - passed - unsupported
    counts = {"passed": passed, "failed": failed, "unsupported": unsupported}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _headline(run: Run, signs: Marks) -> RenderableType:
    head = Text()
    head.append(run.verdict.value, _colour(run.verdict))
    head.append(f"  {plain(run.submission.name, signs.encoding)}", "bold")
    head.append(f" by {plain(run.submission.author, signs.encoding)}")
    where = f"{plain(run.task, signs.encoding)} on {plain(run.device.name, signs.encoding)}"
    facts = (
        f"{run.mode} run {plain(run.id, signs.encoding)}",
        where,
        f"{run.isolation} isolation",
        words.CLOCKS[run.clock],
        f"{run.reference} reference",
        text.duration(run.duration_ns, signs),
    )
    passed = sum(c.verdict is Verdict.PASSED for c in run.cases if c.case.kind is CaseKind.TEST)
    tests = sum(c.case.kind is CaseKind.TEST for c in run.cases)
    count = Text(f"{passed} of {tests} test cases passed" if tests else "no test case was run")
    return Group(head, Text(f" {signs.dot} ".join(facts), "dim"), count)


def _colour(verdict: Verdict) -> str:
    known = {Verdict.PASSED: "bold green", Verdict.UNSUPPORTED: "bold yellow"}
    return known.get(verdict, "bold red")


def _failures(run: Run, signs: Marks, full: bool, stored: bool) -> Iterator[RenderableType]:
    """Where and why: the run's message, unless a case says it, then cases that did not pass."""
    failed = [c for c in run.cases if isinstance(c.outcome, Failed)]
    if run.message and not any(c.message and c.message in run.message for c in failed):
        yield Text(plain(run.message, signs.encoding), "red")
    tried = reached(failed)
    # What is wrong is wrong everywhere, as a rule: fifty lines say no more than three.
    groups = sorted(
        alike(tried, lambda case: _why(case, full)),
        key=lambda group: group[0].verdict is not run.verdict,
    )
    shown = groups if full else groups[:FAILURES_SHOWN]
    for group in shown:
        yield from _failure(group, signs, full)
    rest = len(tried) - sum(map(len, shown))
    name = plain(run.id, signs.encoding)
    if rest:
        where = f"; `harness show {name}` lists them all" if stored else ""
        yield _indented(Text(f"and {rest} more{where}", "dim"))
    if len(tried) < len(failed):
        yield _indented(Text(f"and {len(failed) - len(tried)} more that were not reached", "dim"))
    advice = {c.verdict for c in failed} | {run.verdict}
    for verdict in Verdict:
        if verdict in advice and verdict in words.VERDICTS:
            yield _indented(Text(f"{verdict}: {words.VERDICTS[verdict]}"))


def _why(case: CaseResult, full: bool) -> str:
    """Its message; with how far off it was, for whoever wants everything."""
    check = case.outcome.check
    if not full or check is None:
        return case.message
    return f"{case.message} (largest error {check.max_abs:.4g}, {check.max_ulp:.4g} ulp)"


def _failure(group: Sequence[CaseResult], signs: Marks, full: bool) -> Iterator[RenderableType]:
    """One failure and where it was met: in full everywhere, else first."""
    case = group[0]
    line = Text(case.verdict.value, _colour(case.verdict))
    others = f" and {len(group) - 1} more" if len(group) > 1 else ""
    why = plain(_why(case, full), signs.encoding)
    yield _indented(line.append(f"  {_place(case, signs)} inputs{others}: {why}", "default"))
    check = case.outcome.check
    if check is not None and check.hint not in case.message:
        yield _indented(Text(f"hint: {plain(check.hint, signs.encoding)}"))
    if full and others:
        places = ", ".join(_place(other, signs) for other in group[1:])
        yield _indented(Text(f"the same: {places}", "dim"))


def _indented(line: Text) -> Padding:
    return Padding(line, (0, 0, 0, 2), expand=False)


def _place(case: CaseResult, signs: Marks) -> str:
    shape, inputs = (plain(t, signs.encoding) for t in (case.case.shape.label, case.case.inputs))
    return f"{shape} {inputs}"


def _passed(run: Run, signs: Marks) -> Iterator[RenderableType]:
    """The cases that passed, what was checked and how far off it was; failures are told above."""
    cases = [case for case in run.cases if not isinstance(case.outcome, Failed)]
    if not cases:
        return
    columns = [
        Column("case", order=4),
        Column("shape", wrap=True),
        Column("inputs", wrap=True),
        Column("mismatches", right=True, order=3),
        Column("largest error", right=True, order=2),
        Column("ulp", right=True, order=1),
    ]
    rows = []
    for case in cases:
        check = case.outcome.check
        row: list[Cell] = [
            case.case.kind.value,
            plain(case.case.shape.label, signs.encoding),
            plain(case.case.inputs, signs.encoding),
            f"{check.mismatches} of {check.elements}" if check else signs.none,
            f"{check.max_abs:.4g}" if check else signs.none,
            f"{check.max_ulp:.4g}" if check else signs.none,
        ]
        rows.append(row)
    yield ""
    yield Text("cases that passed", "dim")
    yield Fitted(columns, rows)


def _times(run: Run, timed: list[CaseResult], signs: Marks) -> RenderableType:
    """The times of each shape, and their geometric mean where the run has a score."""
    summary = leaderboard.summarise(run)
    columns = [
        Column("shape", wrap=True),
        Column("time", right=True),
        Column(f"{signs.plus_minus} 95%", right=True, order=6),
        Column("of floor", right=True, order=5),
        Column("light speed", right=True, order=4),
        Column("best", right=True, order=2),
        Column("worst", right=True, order=2),
        Column("by the judge", right=True, order=2),
        Column("host", right=True, order=1),
        Column("samples", right=True, order=3),
        Column("processes", right=True, order=2),
        Column("stopped by", order=1),
        Column("class", order=3),
    ]
    bounded = run.device.kind != "cpu"  # the published bounds are a GPU's
    rows = [_time_row(case, signs, bounded=bounded) for case in timed]
    if summary.score_ns is not None and len(timed) > 1:
        low, high = summary.low_ns or math.nan, summary.high_ns or math.nan
        score: list[Cell] = [
            ("geometric mean", "bold"),
            (text.duration(summary.score_ns, signs), "bold"),
            text.spread(low, summary.score_ns, high, signs),
            text.percent(leaderboard.floor_share(summary.shapes), signs),
            text.percent(leaderboard.light_speed(summary.shapes) if bounded else None, signs),
        ]
        rows.append([*score, *[""] * (len(columns) - len(score))])
    return Fitted(columns, rows)


def _time_row(case: CaseResult, signs: Marks, *, bounded: bool) -> list[Cell]:
    timing = case.timing
    assert timing is not None
    shape = ShapeStanding(
        case.case.shape, timing.median_ns, timing.low_ns, timing.high_ns, timing.floor_ns
    )
    return [
        plain(case.case.shape.label, signs.encoding),
        text.duration(timing.median_ns, signs),
        text.spread(timing.low_ns, timing.median_ns, timing.high_ns, signs),
        text.percent(leaderboard.floor_share([shape]), signs),
        text.percent(leaderboard.light_speed([shape]) if bounded else None, signs),
        text.duration(timing.best_ns, signs),
        text.duration(timing.worst_ns, signs),
        _allowed(timing, signs),
        text.duration(timing.host_median_ns, signs),
        str(timing.samples),
        str(timing.processes),
        timing.stop.value,
        plain(", ".join(timing.classes), signs.encoding),
    ]


def _allowed(timing: Timing, signs: Marks) -> str:
    """What the judge's own clock allows, least to most; nothing where it is what is published."""
    if timing.judge_ns is None or timing.judge_most_ns is None:
        return ""
    ends = text.durations([timing.judge_ns, timing.judge_most_ns], signs)
    return signs.to.join(ends)


def _histograms(run: Run, timed: list[CaseResult], signs: Marks) -> Iterator[RenderableType]:
    table = _grid()
    for case in timed:
        assert case.timing is not None
        bars = text.histogram(samples.published(case.timing, run.clock), signs)
        if bars is not None:
            label = plain(case.case.shape.label, signs.encoding)
            table.add_row(*map(_folding, (label, *bars)))
    if table.rows:
        yield ""
        yield Text("samples, from the fastest 1% to the slowest 1%", "dim")
        yield table


def _remarks(run: Run, signs: Marks) -> Iterator[RenderableType]:
    table = _grid()
    for doubt in run.doubts:
        table.add_row(Text("doubt", "yellow"), _folding(f"{doubt}: {words.DOUBTS[doubt]}"))
    for note in run.notes:
        table.add_row(Text("note"), _folding(plain(note, signs.encoding)))
    if table.rows:
        yield ""
        yield table


def _grid() -> Table:
    return Table.grid(padding=(0, 2), pad_edge=False)


def _folding(words: str, style: str = "") -> Text:
    return Text(words, style, overflow="fold")


def _background(run: Run, signs: Marks) -> Iterator[RenderableType]:
    """Where it ran, and what it printed."""
    facts = (*run.device.facts, *run.environment)
    if "harness" not in dict(run.environment):
        facts += (("harness", run.harness_version),)
    facts += (("made", text.rfc3339(run.created_ns) or "?"),)
    facts += (("submission sha256", run.submission.sha256), ("task digest", run.task_digest))
    facts += (("secret seed, now public", run.secret_seed),) if run.secret_seed else ()
    facts += tuple((f"time {stage}", text.duration(ns, signs)) for stage, ns in run.stages)
    yield ""
    table = _grid()
    for name, value in facts:
        name, value = plain(name, signs.encoding), plain(value, signs.encoding)
        table.add_row(_folding(name, "dim"), _folding(value))
    yield table
    yield from _printed(run, signs, LOG_LINES)


def _printed(run: Run, signs: Marks, most: int) -> Iterator[RenderableType]:
    """The first and the last `most` lines of the log, and how many lie between."""
    if not run.log.strip():
        return
    yield ""
    yield Text("what it printed", "dim")
    printed = text.lines(run.log.rstrip("\n"), signs.encoding)
    between = len(printed) - 2 * most
    if between <= 1:  # a line that says so would be no shorter
        yield from (_indented(_folding(_cut(line))) for line in printed)
        return
    yield from (_indented(_folding(_cut(line))) for line in printed[:most])
    yield _indented(Text(f"[{between} more lines; --json has them]", "dim"))
    yield from (_indented(_folding(_cut(line))) for line in printed[-most:])


def _cut(line: str) -> str:
    """A line without its middle where it would fill a screen."""
    if len(line) <= LINE_CHARS:
        return line
    half = LINE_CHARS // 2
    return f"{line[:half]}[... {len(line) - 2 * half} characters ...]{line[-half:]}"


def _log_hint(run: Run, signs: Marks, stored: bool) -> Iterator[RenderableType]:
    """That it printed something, and where that is; some of it where it is not kept."""
    if not run.log.strip():
        return
    if not stored:
        yield from _printed(run, signs, LOG_LINES_BRIEF)
        return
    printed = run.log.rstrip("\n").split("\n")
    # What a run keeps of a log is bounded, and ends with the traceback of its last error.
    more = "more than " if any(_LEFT_OUT.fullmatch(line) for line in printed) else ""
    count = f"{more}1 line" if len(printed) == 1 else f"{more}{len(printed)} lines"
    trace = ", a traceback among them" if _TRACEBACK in printed else ""
    them = "it" if len(printed) == 1 else "them"
    name = plain(run.id, signs.encoding)
    yield ""
    yield Text(f"it printed {count}{trace}; `harness show {name}` has {them}", "dim")


def _sentence(run: Run, signs: Marks, place: leaderboard.Place, by_author: bool) -> Text:
    """What a reader takes home, in hyperfine's manner."""
    author = f" by {run.submission.author}" if by_author else ""
    name = plain(run.submission.name + author, signs.encoding)
    summary = leaderboard.summarise(run)
    if run.verdict is Verdict.UNSUPPORTED and not _wrong(run):
        return Text(f"{name} cannot run here: {run.verdict}")
    if run.verdict is not Verdict.PASSED:
        return Text(f"{name} did not pass: {run.verdict}")
    said = Text(f"{name} passed")
    if summary.score_ns is not None and summary.low_ns and summary.high_ns:
        width = text.spread(summary.low_ns, summary.score_ns, summary.high_ns, signs)
        said.append(" in ").append(text.duration(summary.score_ns, signs), "bold")
        said.append(f" {width}")
    if (standing := place.standing) is not None:
        rank = f"rank {standing.rank}" + (f" of {place.of}" if place.of is not None else "")
        said.append(", ").append(rank, "bold")
        if standing.rank_low != standing.rank_high:
            said.append(f" (between {standing.rank_low} and {standing.rank_high} within noise)")
        if standing.speedup is not None:
            said.append(f", {text.factor(standing.speedup, signs)} the baseline's speed")
    elif run.mode is not Mode.TEST and (reason := leaderboard.ineligible(run)) is not None:
        said.append(f"; not ranked: {reason}")
    return said


def _wrong(run: Run) -> bool:
    """Whether a case failed by the submission's own fault, beside those that cannot run here."""
    good = (Verdict.PASSED, Verdict.UNSUPPORTED)
    return any(case.verdict not in good for case in run.cases)
