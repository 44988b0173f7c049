"""One run on a terminal: what became of it, where it failed, its times, and how sure they are.

Text of a submission is shown, never interpreted: it goes through text.plain into Text objects.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal, TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness import leaderboard
from harness.model import CaseKind, CaseResult, Failed, Run, ShapeStanding, Standing, Verdict
from harness.render import text, words
from harness.render.table import Column, Fitted
from harness.render.text import Marks, plain

#: Wide enough for any line: a pipe has no width, and what reads it wants whole names.
_UNLIMITED = 100_000


def make_console(stream: TextIO, env: Mapping[str, str], *, width: int | None = None) -> Console:
    """A console that never cuts, colours or crashes where it should not.

    Colour on a terminal only, unless NO_COLOR (not empty) or TERM=dumb forbids it or FORCE_COLOR
    (neither empty nor 0) demands it; NO_COLOR wins.  No width limit when piped.  Characters that
    the stream's encoding lacks come out as escapes.
    """
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    terminal = stream.isatty()
    forced = env.get("FORCE_COLOR", "") not in ("", "0")
    colour = (forced or (terminal and env.get("TERM") != "dumb")) and not env.get("NO_COLOR")
    columns = env.get("COLUMNS", "")
    if width is None and terminal and columns.isdecimal() and int(columns) > 0:
        width = int(columns)
    elif width is None and not terminal:
        width = _UNLIMITED
    return Console(
        file=stream,
        width=width,
        force_terminal=terminal or forced,
        color_system=_colours(env) if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )


def _colours(env: Mapping[str, str]) -> Literal["truecolor", "standard"]:
    return "truecolor" if env.get("COLORTERM") in ("truecolor", "24bit") else "standard"


def run_view(
    run: Run,
    *,
    signs: Marks,
    standing: Standing | None = None,
    of: int | None = None,
    full: bool = False,
) -> RenderableType:
    """A run for people: verdict, failures, times, doubts, one closing sentence.

    `standing` is the run's place among `of` on its board.  `full` adds every case, the samples'
    distribution, the environment, notes and the log.
    """
    parts: list[RenderableType] = [_headline(run, signs), *_failures(run, signs)]
    if full:
        parts += ["", _cases(run, signs)]
    timed = [c for c in run.cases if c.case.kind is CaseKind.BENCHMARK and c.timing is not None]
    if timed:
        parts += ["", _times(run, timed, signs)]
    if timed and full:
        parts += ["", *_histograms(timed, signs)]
    parts += _remarks(run, signs)
    if full:
        parts += _background(run, signs)
    parts += ["", _sentence(run, signs, standing, of)]
    return Group(*parts)


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


def _failures(run: Run, signs: Marks) -> Iterator[RenderableType]:
    """Where and why: the run's message, then each case that did not pass."""
    failed = [c for c in run.cases if isinstance(c.outcome, Failed)]
    told = {c.message for c in failed}
    if run.message and run.message not in told:
        yield Text(plain(run.message, signs.encoding), "red")
    for case in failed:
        line = Text("  ")
        line.append(case.verdict.value, _colour(case.verdict))
        line.append(f"  {_place(case, signs)}: {plain(case.message, signs.encoding)}")
        yield line
        if case.outcome.check is not None and case.outcome.check.hint not in case.message:
            yield Text(f"    hint: {plain(case.outcome.check.hint, signs.encoding)}")
    advice = {c.verdict for c in failed} | {run.verdict}
    for verdict in Verdict:
        if verdict in advice and verdict in words.VERDICTS:
            yield Text(f"  {verdict}: {words.VERDICTS[verdict]}")


def _place(case: CaseResult, signs: Marks) -> str:
    shape, inputs = (plain(t, signs.encoding) for t in (case.case.shape.label, case.case.inputs))
    return f"{shape} {inputs} inputs"


def _cases(run: Run, signs: Marks) -> RenderableType:
    """Every case: what was checked and how far off it was."""
    columns = [
        Column("case"),
        Column("shape"),
        Column("inputs"),
        Column("verdict"),
        Column("mismatches", right=True, order=3),
        Column("largest error", right=True, order=2),
        Column("ulp", right=True, order=1),
    ]
    rows = []
    for case in run.cases:
        check = case.outcome.check
        row = [
            Text(case.case.kind.value),
            Text(plain(case.case.shape.label, signs.encoding)),
            Text(plain(case.case.inputs, signs.encoding)),
            Text(case.verdict.value, _colour(case.verdict)),
            Text(f"{check.mismatches} of {check.elements}" if check else signs.none),
            Text(f"{check.max_abs:.3g}" if check else signs.none),
            Text(f"{check.max_ulp:.3g}" if check else signs.none),
        ]
        rows.append(row)
    return Fitted(columns, rows)


def _times(run: Run, timed: list[CaseResult], signs: Marks) -> RenderableType:
    """The times of each shape, and their geometric mean where the run has a score."""
    summary = leaderboard.summarise(run)
    shown = text.durations([*(s.median_ns for s in summary.shapes), summary.score_ns], signs)
    columns = [
        Column("shape"),
        Column("time", right=True),
        Column(f"{signs.plus_minus} 95%", right=True, order=6),
        Column("of floor", right=True, order=5),
        Column("of light speed", right=True, order=4),
        Column("best", right=True, order=2),
        Column("worst", right=True, order=2),
        Column("host", right=True, order=1),
        Column("samples", right=True, order=3),
        Column("seen", order=3),
    ]
    rows = [_time_row(c, time, signs) for c, time in zip(timed, shown, strict=False)]
    if summary.score_ns is not None and len(timed) > 1:
        low, high = summary.low_ns or math.nan, summary.high_ns or math.nan
        score = [
            Text("geometric mean", "bold"),
            Text(shown[-1], "bold"),
            Text(text.spread(low, summary.score_ns, high, signs)),
            Text(text.percent(leaderboard.floor_share(summary.shapes), signs)),
            Text(text.percent(leaderboard.light_speed(summary.shapes), signs)),
        ]
        rows.append(score + [Text("")] * (len(columns) - len(score)))
    return Fitted(columns, rows)


def _time_row(case: CaseResult, shown: str, signs: Marks) -> list[Text]:
    timing = case.timing
    assert timing is not None
    shape = ShapeStanding(
        case.case.shape, timing.median_ns, timing.low_ns, timing.high_ns, timing.floor_ns
    )
    return [
        Text(plain(case.case.shape.label, signs.encoding)),
        Text(shown),
        Text(text.spread(timing.low_ns, timing.median_ns, timing.high_ns, signs)),
        Text(text.percent(leaderboard.floor_share([shape]), signs)),
        Text(text.percent(leaderboard.light_speed([shape]), signs)),
        Text(text.duration(timing.best_ns, signs)),
        Text(text.duration(timing.worst_ns, signs)),
        Text(text.duration(timing.host_median_ns, signs)),
        Text(f"{timing.samples} in {timing.processes}"),
        Text(plain(", ".join((*timing.classes, f"stop: {timing.stop}")), signs.encoding)),
    ]


def _histograms(timed: list[CaseResult], signs: Marks) -> Iterator[RenderableType]:
    yield Text("samples, from the fastest 1% to the slowest 1%", "dim")
    for case in timed:
        assert case.timing is not None
        times = [w / b.calls for b in case.timing.blocks for w in b.window_ns if b.calls > 0]
        bars = text.histogram(times, signs)
        if bars is not None:
            low, drawn, high = bars
            label = plain(case.case.shape.label, signs.encoding)
            yield Text(f"  {label:>18}  {low:>9} |{drawn}| {high}", no_wrap=True, overflow="crop")


def _remarks(run: Run, signs: Marks) -> Iterator[RenderableType]:
    if run.doubts or run.notes:
        yield ""
    for doubt in run.doubts:
        line = Text("doubt  ", "yellow")
        line.append(f"{doubt}: ", "bold").append(words.DOUBTS[doubt], "default")
        yield line
    for note in run.notes:
        yield Text(f"note   {plain(note, signs.encoding)}")


def _background(run: Run, signs: Marks) -> Iterator[RenderableType]:
    """Where it ran, and what it printed."""
    facts = (*run.device.facts, *run.environment)
    facts += (("harness", run.harness_version), ("made", text.rfc3339(run.created_ns) or "?"))
    facts += (("submission sha256", run.submission.sha256), ("task digest", run.task_digest))
    facts += (("secret seed, now public", run.secret_seed),) if run.secret_seed else ()
    yield ""
    table = Table.grid(padding=(0, 2))
    for name, value in facts:
        name, value = plain(name, signs.encoding), plain(value, signs.encoding)
        table.add_row(Text(name, "dim"), Text(value, overflow="fold"))
    yield table
    if run.log.strip():
        yield ""
        yield Text("what it printed", "dim")
        for line in text.lines(run.log.rstrip("\n"), signs.encoding):
            yield Padding(Text(line, overflow="fold"), (0, 0, 0, 2), expand=False)


def _sentence(run: Run, signs: Marks, standing: Standing | None, of: int | None) -> Text:
    """What a reader takes home, in hyperfine's manner."""
    name = plain(run.submission.name, signs.encoding)
    summary = leaderboard.summarise(run)
    if run.verdict is not Verdict.PASSED:
        return Text(f"{name} did not pass: {run.verdict}")
    said = Text(f"{name} passed")
    if summary.score_ns is not None and summary.low_ns and summary.high_ns:
        width = text.spread(summary.low_ns, summary.score_ns, summary.high_ns, signs)
        said.append(" in ").append(text.duration(summary.score_ns, signs), "bold")
        said.append(f" {width}")
    if standing is not None:
        place = f"rank {standing.rank}" + (f" of {of}" if of is not None else "")
        said.append(", ").append(place, "bold")
        if standing.rank_low != standing.rank_high:
            said.append(f" (between {standing.rank_low} and {standing.rank_high} within noise)")
        if standing.speedup is not None:
            said.append(f", {text.factor(standing.speedup, signs)} the baseline's speed")
    elif (reason := leaderboard.ineligible(run)) is not None:
        said.append(f"; not ranked: {reason}")
    return said
