"""A gate on GitHub: annotations on the submissions' lines, a job summary, text for a comment.

GitHub drops what is beyond its limits, so what is most serious comes first and the rest is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from harness.gate import Finding, GateReport, State, sentence, severity
from harness.render.gate import defused, facts, speed_line
from harness.render.sheets import code
from harness.render.text import plain

#: GitHub shows 10 errors and 10 warnings of a step; ours share one limit.
MAX_ANNOTATIONS = 10
#: GitHub drops a job summary above 1 MiB whole.
MAX_SUMMARY_BYTES = 1 << 20
#: How each summary begins.
BEGIN = "### harness gate: "
_PLACE = re.compile(r":(\d+)\)")
_KERNEL = re.compile(r"^[ \t]*(?:def[ \t]+custom_kernel\b|custom_kernel[ \t]*=)", re.MULTILINE)
_ICONS = {
    State.VERIFIED: "\u2705",
    State.FAILED: "\u274c",
    State.UNVERIFIED: "\u26a0\ufe0f",
    State.BROKEN: "\u2757",
}


def workflow_commands(
    report: GateReport, where: Callable[[str], str], *, limit: int = MAX_ANNOTATIONS
) -> tuple[str, ...]:
    """Workflow commands, most serious first; the last says how many more there are.

    `where` turns a submission's path into one below the repository's top.
    """
    wanted = [f for f in report.findings if f.state is not State.VERIFIED or f.message]
    wanted.sort(key=severity)
    lines = [_annotation(finding, where) for finding in wanted]
    if report.exit_code and not any(f.state is State.FAILED for f in wanted):
        # No file to blame: the machine failed, or there was nothing to verify.
        lines.insert(0, command("error", sentence(report), title="harness gate"))
    if len(lines) <= limit:
        return tuple(lines)
    rest = f"{len(lines) - limit + 1} more submissions are not shown here: {sentence(report)}"
    return (*lines[: limit - 1], command("error", rest, title="harness gate"))


def _annotation(finding: Finding, where: Callable[[str], str]) -> str:
    level = "error" if finding.state in (State.FAILED, State.BROKEN) else "warning"
    if finding.let_through or finding.state is State.VERIFIED:
        level = "notice"
    return command(
        level,
        finding.message,
        file=where(finding.submission.path),
        line=str(line_of(finding)),
        title=f"{finding.submission.name}: {finding.state}",
    )


def line_of(finding: Finding) -> int:
    """The line that the message names, else the kernel's, else the first."""
    source = finding.submission.source
    last = source.count("\n") + 1
    if finding.submission.path in finding.message:
        tail = finding.message.rpartition(finding.submission.path)[2]
        named = _PLACE.match(tail)
        if named and 1 <= int(named.group(1)[:9]) <= last:
            return int(named.group(1))
    kernel = _KERNEL.search(source)
    return source.count("\n", 0, kernel.start()) + 1 if kernel else 1


def command(level: str, message: str, **properties: str) -> str:
    """`::error file=..,line=..,title=..::message`, escaped as GitHub's runner undoes it."""
    fields = ",".join(f"{key}={_property(plain(value))}" for key, value in properties.items())
    return f"::{level} {fields}::{_data(defused(plain(message)))}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(defused(value)).replace(":", "%3A").replace(",", "%2C")


def summary(report: GateReport, *, limit: int = MAX_SUMMARY_BYTES) -> str:
    """Markdown for a job summary or a comment, at most `limit` bytes of UTF-8.

    A table, most serious first, and the times; what does not fit is counted.
    """
    head = _head(report)
    rows = [*_rows(report)]
    tail = f"\n{_count(report)}\n"
    room = limit - len((head + tail).encode()) - 200  # the line that counts what was cut
    if room < 0:
        return ""  # GitHub would drop all of it, and what stands there already with it
    kept: list[str] = []
    for row in rows:
        room -= len(row.encode()) + 1
        if room < 0:
            break
        kept.append(row)
    if len(kept) < len(rows):
        kept.append(f"\n{len(rows) - len(kept)} more lines are left out here, the least serious.")
    return head + "\n".join(kept) + "\n" + tail


def _head(report: GateReport) -> str:
    title = f"{BEGIN}{'passed' if report.exit_code == 0 else 'not passed'}\n\n"
    said = f"{code(report.task)} on {code(report.device)}: {code(sentence(report))}\n\n"
    controls = "".join(
        f"{c.name} control: {code(c.verdict)}{', as it must' if c.ok else ''}  \n"
        for c in report.controls
    )
    return title + said + controls + "\n"


def _rows(report: GateReport) -> Iterator[str]:
    ordered = sorted(report.findings, key=severity)
    if ordered:
        yield "| | submission | facts | what |\n| --- | --- | --- | --- |"
    for finding in ordered:
        what = code(finding.message) if finding.message else ""
        said = ", ".join(facts(finding))
        name = code(finding.submission.path)
        yield f"| {_ICONS[finding.state]} {finding.state} | {name} | {said} | {what} |"
    for finding in ordered:
        if finding.speed is not None and finding.speed.shapes:
            name, base = code(finding.submission.path), code(finding.speed.baseline)
            yield f"\n{name} beside {base}, at most {finding.speed.max_percent:g}% slower:\n"
            yield from (f"- {speed_line(shape)}" for shape in finding.speed.shapes)


def _count(report: GateReport) -> str:
    return f"{len(report.findings)} submissions, exit code {report.exit_code}."
