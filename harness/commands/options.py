"""Options and outputs that commands share.  Commands alone print and read the environment."""

from __future__ import annotations

import gc
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.errors import TaskError
from harness.model import IsolationPolicy

if TYPE_CHECKING:
    from rich.console import Console

    from harness.model import Task
    from harness.render import text

F = TypeVar("F", bound=Callable[..., Any])

#: The store of a task unless --db or HARNESS_DB names another: in its folder.
DEFAULT_STORE = Path("results") / "harness.db"


class Finite(click.FloatRange):
    """A float in a range; NaN, which is in every range and none, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


def db_option(function: F) -> F:
    """`--db URL`, else HARNESS_DB, else None: see `store_url`."""
    return click.option(
        "--db",
        metavar="URL",
        envvar="HARNESS_DB",
        help="Results database: sqlite:///FILE or postgresql://... "
        "(HARNESS_DB; default results/harness.db beside shapes.yaml).",
    )(function)


def json_option(function: F) -> F:
    """`--json`: one document on stdout and nothing else there."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document on stdout."
    )(function)


def problem_option(function: F) -> F:
    """`--problem DIR`: the task's folder."""
    return click.option(
        "--problem",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The task: a folder with shapes.yaml (default: upward from the current folder).",
    )(function)


def device_option(function: F) -> F:
    """`--device NAME`."""
    return click.option(
        "--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N."
    )(function)


def shapes_option(verb: str, instead_of: str) -> Callable[[F], F]:
    """`--shape` as `shapes`: text for `task.parse_shape`, as often as wanted."""
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="m=..,k=..,l=..",
        help=f"{verb} this shape, or 128x256x1, instead of {instead_of}.",
    )


def isolation_option(function: F) -> F:
    """`--isolation POLICY`."""
    return click.option(
        "--isolation",
        type=click.Choice([policy.value for policy in IsolationPolicy]),
        default=IsolationPolicy.AUTO.value,
        show_default=True,
        help="require refuses to run below `sandbox`; off is two plain processes.",
    )(function)


def budget_option(whole: str) -> Callable[[F], F]:
    """`--budget S`, where not the device's own (timing.CPU_BUDGET, CUDA_BUDGET) is wanted."""
    return click.option(
        "--budget",
        type=Finite(0.1, 86400),
        metavar="S",
        help=f"Seconds of sampling for all shapes of {whole} together (30).",
    )


def quiet_option(function: F) -> F:
    """`--quiet`."""
    return click.option("--quiet", is_flag=True, help="No progress on stderr.")(function)


def task_root(problem: Path | None) -> Path | None:
    """The task's folder, or None outside of any; a wrong `problem` is a TaskError."""
    from harness.task import find_root

    try:
        return find_root(problem, Path.cwd(), None)
    except TaskError:
        if problem is not None:
            raise
        return None


def task_at(root: Path | None) -> Task | None:
    """The task in a folder, None where there is none."""
    if root is None:
        return None
    from harness.task import load

    return load(root)


def store_url(db: str | None, root: Path | None) -> str:
    """The database to use: `db` where given, else the default one of the task at `root`."""
    return db or f"sqlite:///{(root or Path.cwd()) / DEFAULT_STORE}"


def say_new(where: str) -> None:
    """Say that a database was made where somebody named one: the name may be a typing error."""
    from harness.render.text import plain

    click.echo(f"harness: new results database {plain(where, 'ascii')}", err=True)


def console() -> Console:
    """Where results go: stdout, right when piped, in any encoding and width."""
    from harness.render.console import make_console

    return make_console(sys.stdout, os.environ)


def signs(console: Console) -> text.Marks:
    """The signs that this console's encoding can show."""
    from harness.render import text

    return text.marks(console.encoding)


def say(document: str) -> None:
    """Print a finished document on stdout, whatever its encoding."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(document.encode(encoding, "backslashreplace").decode(encoding))


@contextmanager
def in_a_hurry() -> Iterator[None]:
    """No garbage collection: importing and reading make little, and it takes a seventh of the time.

    Measured on `leaderboard` with 10,000 runs, imports included: 0.46 s with it, 0.39 s without.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
