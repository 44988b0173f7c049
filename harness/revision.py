"""What git knows: which files changed since a revision, and what one of them was then."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError, UsageError

_TIMEOUT_S = 120
#: What a hook's git says about its own repository: with GIT_DIR set, git takes the current folder
#: for the top of the working tree.  We ask about a folder, so git finds the repository itself.
_OF_A_HOOK = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
)
#: Names as they are, and files looked at: a hook that says what has changed is the checkout's own.
_SETTINGS = ("-c", "core.quotePath=false", "-c", "core.fsmonitor=false")
_FILE_MODES = ("100644", "100755")


@dataclass(frozen=True, slots=True)
class Repository:
    """A git working tree; commits are full ids, so that a moving branch is asked once."""

    top: Path

    def commit(self, revision: str) -> str:
        """The id that a name stands for.  Raises UsageError for what is no commit here."""
        found = self._parse(revision)
        if found.returncode == 0:
            return found.stdout.decode().strip()
        if not _git(self.top, "rev-list", "--all", "--max-count=1").stdout:
            raise UsageError(f"{revision}: {self.top} is a repository without a commit yet")
        raise UsageError(
            f"{revision}: there is no such revision in {self.top}; a shallow clone lacks old "
            "ones (actions/checkout: fetch-depth: 0)"
        )

    def names(self, revision: str) -> tuple[str, ...]:
        """What else a revision may be called, the plainest first; nothing for what is none here."""
        found = self._parse(revision)
        if found.returncode != 0:
            return ()
        commit = found.stdout.decode().strip()
        whole = self._parse(revision, "--symbolic-full-name").stdout.decode().strip()
        return (*filter(None, [whole]), commit, f"{commit}^0")

    def _parse(self, revision: str, *options: str) -> subprocess.CompletedProcess[bytes]:
        # Checked by git to be a name: what begins with a dash would be read as an option.
        what = revision if options else f"{revision}^{{commit}}"
        return _git(
            self.top, "rev-parse", "--verify", "--quiet", *options, "--end-of-options", what
        )

    def changed_since(self, commit: str) -> frozenset[Path]:
        """Files that differ from where this branch left `commit`: committed, edited, new."""
        start = self._fork(commit)
        options = ("--no-renames", "--no-ext-diff", "--ignore-submodules=none")
        names = self._names("diff", "--name-only", *options, "-z", start)
        names += self._names("ls-files", "--others", "--exclude-standard", "-z")
        return frozenset(self.top / os.fsdecode(name) for name in names)

    def same_since(self, commit: str, paths: Iterable[Path]) -> frozenset[Path]:
        """Which of these files hold the very bytes that git kept where this branch left `commit`.

        Git takes a file for unchanged when its content is the same once the filters are undone that
        `.gitattributes` names (ident, eol, working-tree-encoding): a change of that one gives other
        files another text, and what is judged is the text on the disk.
        """
        listed = self._names("ls-tree", "-r", "-z", "--full-tree", self._fork(commit))
        entries = (line.partition(b"\t") for line in listed)
        kept = {
            self.top / os.fsdecode(name): entry.split()[2].decode() for entry, _, name in entries
        }
        return frozenset(path for path in paths if path in kept and _holds(path, kept[path]))

    def _fork(self, commit: str) -> str:
        """Where this branch left `commit`; itself when they have nothing in common."""
        base = _git(self.top, "merge-base", commit, "HEAD")
        return base.stdout.decode().strip() if base.returncode == 0 else commit

    def tracked(self) -> frozenset[Path]:
        """Files whose changes git would see: neither those that it ignores, nor another
        repository's, nor those that it was told to take for unchanged."""
        lines = self._names("ls-files", "-v", "-z")
        return frozenset(self.top / os.fsdecode(line[2:]) for line in lines if line[:2] == b"H ")

    def keeps(self, path: Path) -> bool:
        """Whether git has a file of this name, now or when it is committed."""
        return bool(self._names("ls-files", "-z", "--full-name", "--", str(path)))

    def read(self, commit: str, path: Path) -> bytes | None:
        """Content of a file at that commit; None where there was no file of that name.

        Raises HarnessError when the commit lists the file and git cannot read it.
        """
        try:
            inside = path.resolve().relative_to(self.top).as_posix()
        except ValueError:
            return None
        listed = _git(self.top, "ls-tree", "-z", "--full-tree", commit, "--", inside)
        if listed.returncode != 0:
            raise _unreadable(commit, inside, listed)
        if not listed.stdout:
            return None
        mode, _, blob = listed.stdout.partition(b"\t")[0].decode().split()
        if mode not in _FILE_MODES:
            return None  # a folder, a link or a submodule
        found = _git(self.top, "cat-file", "blob", blob)
        if found.returncode != 0:
            raise _unreadable(commit, inside, found)
        return found.stdout

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
    return Repository(Path(os.fsdecode(found.stdout.removesuffix(b"\n"))).resolve())


def _holds(path: Path, blob: str) -> bool:
    """Whether a file holds what git calls by this id, byte for byte."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    algorithm = "sha1" if len(blob) == 40 else "sha256"
    found = hashlib.new(algorithm, b"blob %d\0" % len(content), usedforsecurity=False)
    found.update(content)
    return found.hexdigest() == blob


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    try:
        return subprocess.run(
            # Names come and go as bytes, never patterns.
            ["git", *_SETTINGS, "--literal-pathspecs", "-C", folder, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            # Nobody is asked for a password, and the lock of a commit under way is not waited for.
            env={**kept, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"},
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("git is not installed, and --changed and revisions need it") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {arguments[0]} in {folder}: no answer in {_TIMEOUT_S} s") from None


def _unreadable(
    commit: str, inside: str, found: subprocess.CompletedProcess[bytes]
) -> HarnessError:
    return HarnessError(
        f"{commit[:10]}:{inside}: is in that commit and git cannot read it ({_reason(found)}); "
        "fetch what is missing (git fetch --refetch), or look at the repository (git fsck)"
    )


def _reason(found: subprocess.CompletedProcess[bytes]) -> str:
    lines = found.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else f"git ended with {found.returncode}"
