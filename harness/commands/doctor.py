"""`harness doctor`: what this machine can do, and what it lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.commands import options
from harness.doctor import Finding, examine
from harness.render.text import plain


@click.command("doctor")
@options.json_option
@options.db_option
@options.problem_option
def command(as_json: bool, db: str | None, problem: Path | None) -> None:
    """Say what this machine can do, what it lacks, and how to get that.

    Exit code 0 whatever is found: without a GPU a machine can still check submissions.
    """
    findings = examine(options.store_url(db, options.task_root(problem)))
    if as_json:
        from harness.render import export

        listed = [dataclasses.asdict(finding) for finding in findings]
        options.say(export.dumps({"schema": 1, "findings": listed}) + "\n")
        return
    console = options.console()
    console.print(_view(findings, options.signs(console).encoding))


def _view(findings: Sequence[Finding], encoding: str) -> RenderableType:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    area = ""
    for finding in findings:
        heading = "" if finding.area == area else finding.area
        area = finding.area
        said = Text(plain(finding.value, encoding))
        if finding.ok is False and finding.remedy:
            said.append(f"\n{plain(finding.remedy, encoding)}", "dim")
        name = Text(plain(finding.name, encoding))
        table.add_row(Text(heading, "bold"), _sign(finding.ok), name, said)
    return Group(table, "", *_closing(findings))


def _sign(ok: bool | None) -> Text:
    if ok is None:
        return Text("")
    return Text("ok", "green") if ok else Text("no", "yellow")


def _closing(findings: Sequence[Finding]) -> Iterator[Text]:
    """What that means for a run here."""
    gpus = [f for f in findings if f.area == "device" and f.name.endswith(" name")]
    levels = [f.name for f in findings if f.area == "isolation" and f.ok]
    where = "on a GPU" if gpus else "on the CPU, on a board of its own"
    level = levels[0] if levels else "separated"
    yield Text(f"`harness run` checks and times here {where}, at isolation level {level}.")
