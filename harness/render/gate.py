"""A gate for people and for programs: lines on a terminal, one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.gate import Finding, GateReport, State, first_failure, place, sentence
from harness.model import CaseKind, Failed, Run, Verdict, alike, reached
from harness.render import export
from harness.render.text import Marks, plain
from harness.slowdown import Pace, ShapeSpeed

_COLOURS = {
    State.VERIFIED: "bold green",
    State.FAILED: "bold red",
    State.UNVERIFIED: "bold yellow",
    State.BROKEN: "bold red",
}
_WIDTH = max(len(state) for state in State)


#: Cases of one submission that are told one by one; the others are rarely about something else.
_FAILURES = 3


def defused(line: str) -> str:
    """Text in which GitHub's runner sees no command of its old form, looked for anywhere."""
    return line.replace("##[", "## [")


def gate_view(report: GateReport, signs: Marks) -> RenderableType:
    """One line a submission, what failed below it, and a closing sentence."""
    parts: list[RenderableType] = []
    for control in report.controls:
        said = f"{control.name} control: {control.verdict}" + (", as it must" if control.ok else "")
        parts.append(Text(said, "dim" if control.ok else "bold red"))
    for finding in report.findings:
        parts += _lines(finding, signs)
    parts += ["", Text(_shown(f"{sentence(report)} (exit code {report.exit_code})", signs))]
    return Group(*parts)


def _lines(finding: Finding, signs: Marks) -> Iterator[RenderableType]:
    colour = "yellow" if finding.let_through else _COLOURS[finding.state]
    line = Text(f"{finding.state:<{_WIDTH}}  ", colour)
    line.append(_shown(finding.submission.path, signs), "default")
    line.append(f"  {', '.join(facts(finding))}", "dim")
    yield line
    if finding.message:
        yield _indented(_shown(finding.message, signs), colour)
    if finding.run is not None and finding.state is State.FAILED:
        yield from _failures(finding, finding.run, signs)
    for shape in finding.speed.shapes if finding.speed is not None else ():
        yield _indented(speed_line(shape), "red" if shape.pace is Pace.SLOWER else "default")


def _failures(finding: Finding, run: Run, signs: Marks) -> Iterator[RenderableType]:
    """What the finding's own message does not say; the same words of many cases are said once."""
    told = first_failure(run)  # in the message, as a rule
    failed = [c for c in run.cases if isinstance(c.outcome, Failed)]
    groups = alike(reached(failed), lambda case: case.message)
    others = [
        group
        for group in groups
        if not (
            (case := group[0]) is told and f"{place(case.case)}: {case.message}" in finding.message
        )
    ]
    for group in others[:_FAILURES]:
        case, more = group[0], f" and {len(group) - 1} more" if len(group) > 1 else ""
        said = f"{case.verdict} {place(case.case)}{more}: {case.message}"
        yield _indented(_shown(said, signs), "default")
    if rest := sum(map(len, others[_FAILURES:])):
        yield _indented(f"and {rest} more; --json has them all", "dim")


def _shown(said: str, signs: Marks) -> str:
    return defused(plain(said, signs.encoding))


def _indented(said: str, style: str) -> Padding:
    return Padding(Text(said, style), (0, 0, 0, _WIDTH + 2), expand=False)


def speed_line(shape: ShapeSpeed) -> str:
    """`128x256x1: +3.10% (+2.85% to +3.35%), slower, 4 pairs`."""
    return f"{shape.shape.label}: {shape.percent}, {shape.pace}, {shape.pairs} pairs"


def facts(finding: Finding) -> list[str]:
    """Short facts beside a submission's name: cases, what was let through, kept, doubted."""
    found = []
    if finding.run is not None:
        tests = [c for c in finding.run.cases if c.case.kind is CaseKind.TEST]
        good = sum(c.verdict is Verdict.PASSED for c in tests)
        found.append(f"{good} of {len(tests) + len(finding.missing)} cases")
        found += [str(doubt) for doubt in finding.run.doubts]
    if finding.cached:
        found.append("kept verdict")
    if finding.let_through:
        found.append("let through")
    return found


def gate_json(report: GateReport) -> str:
    """`gate --json` as text.

    GitHub's runner reads a step's output for commands and knows no JSON, so that what it looks
    for is spelt otherwise there, with the same value.
    """
    return export.dumps(gate_document(report)).replace("##[", r"#\u0023[") + "\n"


def gate_document(report: GateReport) -> dict[str, Any]:
    """`gate --json`: the gate's own account, and every run in the form of `run --json`."""
    runs = [f.run for f in report.findings if f.run is not None]
    gate = {
        "task": report.task,
        "device": report.device,
        "exit_code": report.exit_code,
        "sentence": sentence(report),
        "duration_s": report.duration_ns / 1e9,
        "controls": [
            {"name": c.name, "verdict": c.verdict, "ok": c.ok, "message": c.message}
            for c in report.controls
        ],
        "unchanged": list(report.unchanged),
        "allowed": [gap.value for gap in report.allowed],
        "submissions": [_finding(finding) for finding in report.findings],
    }
    return {"schema": export.SCHEMA, "gate": gate, "runs": export.run_document(runs, {})["runs"]}


def _finding(finding: Finding) -> dict[str, Any]:
    submission, speed = finding.submission, finding.speed
    return {
        "name": submission.name,
        "path": submission.path,
        "sha256": submission.sha256,
        "state": finding.state.value,
        "message": finding.message,
        "run": None if finding.run is None else finding.run.id,
        "kept": finding.cached,
        "gap": None if finding.gap is None else finding.gap.value,
        "let_through": finding.let_through,
        "missing": [
            {"shape": dict(c.shape.axes), "inputs": c.inputs, "seed": c.seed}
            for c in finding.missing
        ],
        "speed": None
        if speed is None
        else {
            "baseline": speed.baseline,
            "max_slowdown_percent": speed.max_percent,
            "message": speed.message,
            "shapes": [_shape_speed(shape) for shape in speed.shapes],
        },
    }


def _shape_speed(shape: ShapeSpeed) -> dict[str, Any]:
    return {
        "shape": dict(shape.shape.axes),
        "outcome": shape.pace.value,
        "ratio": shape.ratio,
        "low": shape.low,
        "high": shape.high,
        "p": shape.p,
        "pairs": shape.pairs,
    }
