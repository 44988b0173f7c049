"""Where `harness gate` and its judges keep things: never where a pull request can put one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import machine
from harness.commands.gate_files import checkouts_of, links_on, real
from harness.commands.gate_reports import warn
from harness.errors import UsageError
from harness.verdict_cache import VerdictCache

#: What machine.cache_folder goes by first.
_VARIABLE = "XDG_CACHE_HOME"


@contextlib.contextmanager
def clean_cache(*, root: Path, paths: Sequence[Path], workspace: str | None) -> Iterator[None]:
    """Where the user's cache lies in a checkout, have one that begins empty and ends with the gate.

    Judges believe what they find there: code that a pull request committed under the name of the
    baseline's would make the baseline slow.  They take the variable from us.
    """
    folder = machine.cache_folder()
    checkout = _checkout_around(folder, root, paths, workspace)
    if checkout is None:
        yield
        return
    warn(
        f"{folder}: lies in the checkout {checkout}, where a pull request could commit verdicts "
        "and compiled code, so nothing is read or kept there; set XDG_CACHE_HOME to another folder"
    )
    before = os.environ.get(_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="harness-", ignore_cleanup_errors=True) as empty:
        os.environ[_VARIABLE] = empty
        try:
            yield
        finally:
            del os.environ[_VARIABLE]
            if before is not None:
                os.environ[_VARIABLE] = before


def kept_verdicts(
    folder: Path | None, *, root: Path, paths: Sequence[Path], workspace: str | None
) -> VerdictCache | None:
    """The cache in a folder, or in the default one.  Raises UsageError for one that is no place.

    A default folder that is none is a warning and no cache: nobody chose it.

    An entry is believed, and whatever is checked out may have come with a pull request.  That git
    tracks nothing there, or ignores it, would not do: a link, a submodule, another case of a name
    or a checkout without git (a tarball) brings files that `git ls-files` does not list there, and
    .gitignore is the pull request's own.  A CI's cache lays its files over these and removes none.
    """
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UsageError(f"--cache {folder}: is not a folder")
    chosen = folder or machine.cache_folder() / "verdicts"
    checkout = _checkout_around(chosen, root, paths, workspace)
    if checkout is None:
        return VerdictCache(chosen)
    reason = f"lies in the checkout {checkout}, where a pull request could commit verdicts"
    if folder is not None:
        raise UsageError(
            f"--cache {folder}: {reason}; name a folder outside of it (on GitHub "
            "$RUNNER_TEMP/verdicts), or use --no-cache"
        )
    warn(f"{chosen}: {reason}, so all are judged and none is kept; --cache names another folder")
    return None


def _checkout_around(
    folder: Path, root: Path, paths: Sequence[Path], workspace: str | None
) -> Path | None:
    """The checkout of the task, of a submission or of the CI's job that a folder lies in."""
    # And on the way: a link in the checkout may lead to anything else a stranger can fill.
    ends = (Path(os.path.abspath(folder)), *links_on(folder), real(folder))
    checkouts = checkouts_of([root, *(real(path).parent for path in paths)], workspace) | {root}
    around = {place for end in ends for place in (end, *end.parents)}
    return min(checkouts & around, default=None)
