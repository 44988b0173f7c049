"""`harness new`: write a working starting point for a submission."""

from __future__ import annotations

import contextlib
import os
import re
from importlib import resources
from pathlib import Path

import click

from harness.commands import options
from harness.errors import HarnessError, TaskError, UsageError
from harness.task import find_root, load

#: What each kind's author writes in; the file of that name in harness/templates.
KINDS = ("torch", "triton", "cuda", "cute")
#: Where a starting point can be tried.
NEEDS = dict.fromkeys(KINDS, " on a machine with a GPU") | {"torch": ""}
#: The starting points compute this task and no other.
TASK = "nvfp4_gemv"
#: Also a module's name and a compiled extension's: no separators, no dots, nothing hidden.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@click.command("new")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="torch",
    show_default=True,
    help="What it is written in.",
)
@options.problem_option
def command(name: str, kind: str, problem: Path | None) -> None:
    """Write submissions/NAME.py, a working starting point; never overwrites a file."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"NAME {name!r}: expected a letter, then at most 63 letters, digits and underscores, "
            "without a folder and without .py"
        )
    root = find_root(problem, Path.cwd(), None)
    task = load(root)
    if task.name != TASK:
        raise TaskError(
            f"{root}: the starting points are for {TASK}, and this task is {task.name}; begin with "
            "a copy of one of its own submissions"
        )
    source = resources.files("harness").joinpath("templates", f"{kind}.py")
    text = source.read_text(encoding="utf-8").replace("NAME", name)
    path = root / "submissions" / f"{name}.py"
    _write(path, text)
    shown = _near(path)
    click.echo(f"wrote {shown}; check it{NEEDS[kind]}: harness run {shown} --mode test")


def _write(path: Path, text: str) -> None:
    """Create the file whole or not at all, and only where there is none."""
    try:
        path.parent.mkdir(exist_ok=True)
        # O_EXCL: neither a file nor a link that somebody planted is written through.
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                with contextlib.suppress(OSError):
                    path.unlink()
                raise
    except FileExistsError:
        raise UsageError(f"{path}: exists already; choose another NAME") from None
    except OSError as error:
        raise HarnessError(f"{path}: cannot be written ({error.strerror})") from None


def _near(path: Path) -> str:
    """The shortest way to say where it is."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
