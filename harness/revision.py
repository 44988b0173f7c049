"""What git knows: which files changed since a revision, and what one of them was then."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError

_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Repository:
    """A git working tree; commits are full ids, so that a moving branch is asked once."""

    top: Path

    def commit(self, revision: str) -> str:
        """The id that a name stands for.  Raises UsageError for what is no commit here."""
        # Checked by git to be a name: what begins with a dash would be read as an option.
        found = _git(
            self.top,
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{revision}^{{commit}}",
        )
        if found.returncode != 0:
            raise UsageError(
                f"{revision}: there is no such revision in {self.top}; a shallow clone lacks old "
                "ones (actions/checkout: fetch-depth: 0)"
            )
        return found.stdout.decode().strip()

    def changed_since(self, commit: str) -> frozenset[Path]:
        """Files that differ from where this branch left `commit`: committed, edited, new."""
        base = _git(self.top, "merge-base", commit, "HEAD")
        start = base.stdout.decode().strip() if base.returncode == 0 else commit
        names = self._names("diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", start)
        names += self._names("ls-files", "--others", "--exclude-standard", "-z")
        return frozenset(self.top / os.fsdecode(name) for name in names)

    def read(self, commit: str, path: Path) -> bytes | None:
        """Content of a file at that commit; None where it did not exist."""
        try:
            inside = path.resolve().relative_to(self.top).as_posix()
        except ValueError:
            return None
        found = _git(self.top, "cat-file", "blob", f"{commit}:{inside}")
        return found.stdout if found.returncode == 0 else None

    def _names(self, *arguments: str) -> list[bytes]:
        found = _git(self.top, *arguments)
        if found.returncode != 0:
            raise UsageError(f"git {arguments[0]} in {self.top}: {_reason(found)}")
        return [name for name in found.stdout.split(b"\0") if name]


def repository(folder: Path) -> Repository:
    """The working tree around a folder.  Raises UsageError when there is none."""
    found = _git(folder, "rev-parse", "--show-toplevel")
    if found.returncode != 0:
        raise UsageError(f"{folder}: not in a git repository ({_reason(found)})")
    return Repository(Path(os.fsdecode(found.stdout.rstrip(b"\n"))).resolve())


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            # Names come as bytes, never quoted; nobody is asked for a password.
            ["git", "-c", "core.quotePath=false", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("git is not installed, and --changed and revisions need it") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {arguments[0]} in {folder}: no answer in {_TIMEOUT_S} s") from None


def _reason(found: subprocess.CompletedProcess[bytes]) -> str:
    lines = found.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else f"git ended with {found.returncode}"
