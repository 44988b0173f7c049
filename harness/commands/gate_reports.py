"""Where the findings of `harness gate` go: screen, JSON, JUnit, Markdown, GitHub."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from harness import whole_file
from harness.commands import options
from harness.commands.gate_files import TASK_FOLDERS, links_in_checkouts, real
from harness.errors import HarnessError, UsageError
from harness.gate import GateReport

#: GitHub refuses a comment above 65,536 characters.
COMMENT_BYTES = 65_000


def warn(line: str) -> None:
    from harness.render.gate import defused
    from harness.render.text import plain

    print(defused(plain(f"harness: warning: {line}", "ascii")), file=sys.stderr)


@dataclass(frozen=True, slots=True)
class Reports:
    """Where a gate's findings go."""

    junit: Path | None
    markdown: Path | None
    github: bool
    as_json: bool

    def _files(self) -> list[tuple[str, Path]]:
        given = (("--junit", self.junit), ("--markdown", self.markdown))
        return [(option, path) for option, path in given if path is not None]

    def refuse_targets(self, inputs: Sequence[Path], root: Path) -> None:
        """Before anything is opened for writing.  Raises UsageError for what must not be lost."""
        self._refuse_inputs(inputs, root)
        workspace = os.environ.get("GITHUB_WORKSPACE")
        for option, path in self._files():
            _refuse_links(option, path, root, workspace)
            _refuse_missing_folder(option, path)
            _refuse_another_file(option, path)

    def _refuse_inputs(self, inputs: Sequence[Path], root: Path) -> None:
        """A shell makes two paths of `--junit s/*.py`."""
        taken = [*inputs, root / "shapes.yaml"]
        for option, path in self._files():
            end = real(path)
            ours = any(real(root / name) in (end, *end.parents) for name in TASK_FOLDERS)
            if ours or ".py" in (path.suffix, end.suffix) or any(_same(path, t) for t in taken):
                raise UsageError(
                    f"{option} {path}: a report would overwrite what the gate reads, or the other "
                    "report; name another file"
                )
            taken.append(path)

    @contextlib.contextmanager
    def proven_writable(self) -> Iterator[None]:
        """Before an hour of judging whose report could not be written.  Raises UsageError.

        An earlier report stays until the new one is written, and an empty file never does.
        """
        made: list[Path] = []
        try:
            for option, path in self._files():
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    new = not path.exists()
                    with path.open("ab"):
                        made += [real(path)] if new else []
                except OSError as error:
                    reason = f"cannot be written ({error.strerror})"
                    raise UsageError(f"{option} {path}: {reason}") from None
            yield
        finally:
            for path in made:
                with contextlib.suppress(OSError):
                    if path.stat().st_size == 0:
                        path.unlink()

    def write(self, report: GateReport) -> None:
        """All that was asked for, the screen first.  Raises HarnessError after the last.

        One output that cannot be written takes no other with it.
        """
        from harness.render import github
        from harness.render.junit import junit

        failed: list[str] = []
        with _noting("stdout", failed):
            self._show(report)
        if self.github:
            with _noting("the annotations", failed):
                _annotate(report, sys.stderr if self.as_json else sys.stdout)
        for option, path in self._files():
            with _noting(f"{option} {path}", failed):
                made = (
                    junit(report)
                    if option == "--junit"
                    else github.summary(report, limit=COMMENT_BYTES)
                )
                whole_file.put(path, made.encode("utf-8", "backslashreplace"))
        if failed:
            raise HarnessError("\n".join(failed))

    def _show(self, report: GateReport) -> None:
        from harness.render import gate as view

        if self.as_json:
            options.say(view.gate_json(report))
        else:
            console = options.console()
            console.print(view.gate_view(report, options.signs(console)))
        sys.stdout.flush()


def _refuse_links(option: str, path: Path, root: Path, workspace: str | None) -> None:
    """A pull request may have committed a link where the report's folder would be."""
    itself = real(path.parent) / path.name  # may be a link, if git does not keep it
    for link in links_in_checkouts(path, root, workspace):
        if link != itself:
            raise UsageError(
                f"{option} {path}: lies behind {link}, which is a link in the checkout; name what "
                "it points to"
            )


def _refuse_missing_folder(option: str, path: Path) -> None:
    """Folders are made below the current one; another that is not there was hardly meant."""
    folder = real(path.parent)
    if not folder.exists() and real(Path.cwd()) not in folder.parents:
        raise UsageError(
            f"{option} {path}: cannot be written (there is no folder {path.parent}); make it, or "
            "name a file below the current folder"
        )


def _refuse_another_file(option: str, path: Path) -> None:
    """An earlier report may be replaced, and a pipe or a device written to; nothing else may."""
    from harness.render import github, junit

    begin = junit.BEGIN if option == "--junit" else github.BEGIN
    remedy = f"it is no earlier {option} report of a gate; remove it or name another file"
    ours = re.compile(re.escape(begin.encode()))
    whole_file.refuse_foreign(path, [ours], option=f"{option} ", remedy=remedy)
    if os.path.lexists(path) and any(map(_in_git, (real(path.parent) / path.name, real(path)))):
        raise UsageError(
            f"{option} {path}: git keeps this file, so no report replaces it; name another file"
        )


def _in_git(path: Path) -> bool:
    from harness.revision import repository

    try:
        return repository(path.parent).keeps(path)
    except UsageError:
        return False  # no repository, or no git


@contextlib.contextmanager
def _noting(name: str, failed: list[str]) -> Iterator[None]:
    """Add what kept an output from being written to a list, and go on."""
    try:
        yield
    except OSError as error:
        failed.append(f"{name}: cannot be written ({error.strerror or error})")


def _same(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file, be it through links or by two names on the disk."""
    try:
        return real(path) == real(other) or path.samefile(other)
    except OSError:
        return False


def _annotate(report: GateReport, stream: TextIO) -> None:
    """The job summary and the workflow commands.

    The runner reads commands on both streams; with --json, stdout is the document's.
    """
    from harness.render import github

    _append_summary(report)
    for line in github.workflow_commands(report, _from_workspace):
        print(line.encode("ascii", "backslashreplace").decode(), file=stream)
    stream.flush()


def _append_summary(report: GateReport) -> None:
    """Add to the job summary; where it cannot be written, the verdict stands all the same."""
    from harness.render import github

    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    try:
        path = Path(name)
        there = path.stat().st_size if path.exists() else 0
        text = github.summary(report, limit=max(0, github.MAX_SUMMARY_BYTES - there))
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        warn(f"GITHUB_STEP_SUMMARY {name}: cannot be written ({error.strerror})")


def _from_workspace(path: str) -> str:
    """A path below the repository's top, as annotations need it."""
    return os.path.relpath(Path(path).resolve(), os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
