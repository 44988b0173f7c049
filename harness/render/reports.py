"""Self-test and profile for people: rich renderables of plain values, untrusted names made safe."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from harness.model import Failed, Run, Verdict
from harness.profile_values import ProfileReport, ShapeProfile
from harness.render.table import Cell, Column, Fitted
from harness.render.text import Marks, amount, duration, percent, plain
from harness.selftest_values import SelfTestLine, SelfTestReport


def controls_view(
    judged: Mapping[str, Run], expected: Mapping[str, set[Verdict]], signs: Marks
) -> RenderableType:
    """What became of each control, and whether it had to."""
    columns = [Column("control"), Column("verdict"), Column("expected"), Column("")]
    rows: list[list[Cell]] = [
        [
            name.replace("_", " "),
            run.verdict.value,
            " or ".join(sorted(verdict.value for verdict in expected[name])),
            ("held", "green") if run.verdict in expected[name] else ("FAILED", "bold red"),
        ]
        for name, run in judged.items()
    ]
    return Group(Fitted(columns, rows), "")


def selftest_view(report: SelfTestReport, signs: Marks) -> RenderableType:
    """Every claim with what was known and what was read, then one sentence."""
    head = Text(f"{plain(report.device.name, signs.encoding)}", "bold")
    head.append(f" {signs.dot} worker at {report.isolation} isolation")
    columns = [Column("claim"), Column("known", right=True), Column("read", right=True)]
    columns += [Column("allowed", right=True), Column("")]
    rows = [_selftest_row(line, signs) for line in report.lines]
    parts: list[RenderableType] = [head, "", Fitted(columns, rows)]
    parts += [Text(f"{name}: {value:.4g}", "dim") for name, value in report.constants]
    if report.ok and all(line.known_ns is None for line in report.lines):
        said = "Nothing of known length runs on a processor; the controls above are the proof."
        parts += ["", Text(said)]
    elif report.ok:
        parts += ["", Text("This machine's clock reads what is known.")]
    elif report.lines:
        bad = ", ".join(line.name for line in report.lines if not line.ok)
        parts += ["", Text(f"Do not rank here: off by more than allowed: {bad}.", "bold")]
    else:
        parts += ["", Text("Do not rank here: the clock could not be read.", "bold")]
    return Group(*parts)


def _selftest_row(line: SelfTestLine, signs: Marks) -> list[Cell]:
    known = signs.none if line.known_ns is None else duration(line.known_ns, signs)
    allowed = signs.none
    if line.allowed_ns is not None:
        allowed = f"{signs.plus_minus} {duration(line.allowed_ns, signs)}"
    return [
        line.name,
        known,
        duration(line.read_ns, signs),
        allowed,
        ("held", "green") if line.ok else ("FAILED", "bold red"),
    ]


def profile_view(report: ProfileReport, signs: Marks) -> RenderableType:
    """One table a shape, what takes longest first, and what to look at next."""
    parts: list[RenderableType] = []
    for shape in report.shapes:
        parts += [*_shape(shape, signs, cpu=report.device.kind == "cpu"), ""]
    if isinstance(report.failed, Failed):
        message = plain(report.failed.message, signs.encoding)
        parts.append(Text(f"{report.failed.verdict}: {message}", "bold red"))
    elif report.shapes:
        traces = [shape.trace for shape in report.shapes if shape.trace]
        if traces:
            parts.append(Text(f"Traces for https://ui.perfetto.dev: {', '.join(traces)}"))
    return Group(*parts)


def _shape(shape: ShapeProfile, signs: Marks, *, cpu: bool) -> list[RenderableType]:
    """A CPU runs operators, one after the other; a GPU runs kernels on streams."""
    what = "operator" if cpu else "kernel"
    head = Text(shape.shape.label, "bold")
    head.append(f"  {duration(shape.span_ns, signs)} from first to last {what}")
    if shape.busy_ns < 0.98 * shape.span_ns:
        where = f"between {what}s" if cpu else "idle"
        head.append(f", {percent(1 - shape.busy_ns / shape.span_ns, signs)} of it {where}")
    if shape.compulsory_bytes is not None and shape.span_ns > 0:
        rate = amount(shape.compulsory_bytes / shape.span_ns * 1e9, "B/s")
        head.append(f", {amount(shape.compulsory_bytes, 'B')} needed, {rate}")
    if shape.floor_ns is not None and shape.span_ns > 0:
        head.append(f", {percent(shape.floor_ns / shape.span_ns, signs)} of the roofline")
    if shape.classes:
        head.append(f" ({', '.join(shape.classes)})")
    columns = [
        Column(what, wrap=True),
        Column("calls", right=True),
        Column("time of each", right=True),
        Column("share of all", right=True),
        *([] if cpu else [Column("stream", right=True)]),
    ]
    total = sum(k.per_call * k.median_ns for k in shape.kernels) or 1.0
    rows: list[list[Cell]] = [
        [
            plain(k.name, signs.encoding),
            f"{k.per_call:g}",
            duration(k.median_ns, signs),
            percent(k.per_call * k.median_ns / total, signs),
            *([] if cpu else [str(k.stream)]),
        ]
        for k in shape.kernels[:20]
    ]
    return [head, Fitted(columns, rows)]
