"""The private folder of one run, and the compile cache that outlives it.

A cache belongs to one submission's exact text on one machine, so two submissions that build an
extension of the same name never meet, and a killed build's lock file is not carried on
(tests/exploits/zoo/k3_poison_the_cache.py, o2_stale_lock.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import scratch
from harness.errors import SandboxError

#: Compiled code of one submission larger than this is built again next time.
CACHE_BYTES = 512 << 20
#: Files and folders of one submission's; a torch extension's build makes about a hundred.
CACHE_FILES = 20_000
#: Submissions whose compiled code is kept; the longest unused go first.
CACHE_ENTRIES = 64
#: Inside the scratch folder: what the environment of sandbox.worker_environment points at.
CACHE_FOLDER = "cache"


def cache_key(*parts: str) -> str:
    """Name a cache entry by everything that decides what a compiler would produce."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@contextlib.contextmanager
def scratch_folder(key: str, cache_root: Path, keep: Callable[[], bool]) -> Iterator[Path]:
    """Yield a fresh private folder holding the key's compile cache.

    Afterwards that cache is kept where `keep` says so, and forgotten otherwise: a compiler that was
    killed leaves half a library, which every later run of the same text would fail to load.

    The path depends on the key alone where possible, since build systems write absolute paths into
    what they reuse; a second run of the same submission beside the first gets another path.
    Raises SandboxError when no folder can be made.
    """
    with contextlib.ExitStack() as stack:
        folder = _claim(Path(tempfile.gettempdir()) / f"harness-{os.getuid()}-{key[:16]}", stack)
        stack.callback(_discard, folder)
        saved = cache_root / key
        (folder / CACHE_FOLDER).mkdir()
        with contextlib.suppress(OSError):
            copy_plain_files(saved, folder / CACHE_FOLDER)
        if os.getuid() == 0:
            _open_up(folder / CACHE_FOLDER)
        yield folder
        with contextlib.suppress(OSError):
            if keep():
                _save(folder / CACHE_FOLDER, saved)
            else:
                shutil.rmtree(saved, ignore_errors=True)
            _prune(cache_root)


def _claim(path: Path, stack: contextlib.ExitStack) -> Path:
    """Create `path`, or a path of its own when another run holds it."""
    try:
        _lock(Path(f"{path}.lock"), stack)
        scratch.remove(path)  # of a run that was killed
        path.mkdir(mode=0o700)
    except (BlockingIOError, FileExistsError):
        return Path(tempfile.mkdtemp(prefix="harness-"))
    except OSError as error:
        raise SandboxError(
            f"{path}: cannot create a scratch folder ({error.strerror}): set TMPDIR to a folder "
            "that can be written"
        ) from None
    return path


def _lock(path: Path, stack: contextlib.ExitStack) -> None:
    """Hold a lock until `stack` ends, which removes its file.  Raises BlockingIOError, OSError."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its holder may have removed it after it was opened here: then it keeps nobody out.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.lstat()):
                stack.callback(path.unlink, missing_ok=True)
                return


def _discard(folder: Path) -> None:
    """Remove a run's folder as far as that is possible."""
    with contextlib.suppress(OSError):
        scratch.remove(folder)


def _open_up(folder: Path) -> None:
    """Let a worker of any user write here: root's workers get one of their own in each run.

    Nobody else gets this far, since the scratch folder above belongs to that worker alone.
    """
    for here, _, files in os.walk(folder, followlinks=False):
        os.chmod(here, 0o777)
        for name in files:
            path = Path(here) / name
            os.chmod(path, path.lstat().st_mode & 0o777 | 0o666)


def copy_plain_files(source: Path, target: Path) -> None:
    """Copy regular files and folders only, files' times kept, no links followed, no locks, capped.

    Raises OSError when the tree is larger than CACHE_BYTES or cannot be read.
    """
    total = 0
    for path, status in _walk(source):
        there = target / path.relative_to(source)
        if stat.S_ISDIR(status.st_mode):
            there.mkdir(exist_ok=True)
        elif stat.S_ISREG(status.st_mode) and path.name not in ("lock", ".ninja_lock"):
            total += status.st_size
            if total > CACHE_BYTES:
                raise OSError("the compile cache is too large to keep")
            shutil.copy2(path, there, follow_symlinks=False)
            # The copy is the judge's user's, root's perhaps: no stranger's setuid bit stays on it.
            there.chmod(status.st_mode & 0o777)


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below a folder that a worker filled, parents first; no link is followed.

    Not even in the place of `folder` itself (tests/exploits/zoo/k4_cache_link.py).  Raises OSError
    for more entries than a compiler makes, or for a tree without end.
    """
    waiting, seen = [folder], 0
    while waiting:
        here = waiting.pop()
        if not stat.S_ISDIR(here.lstat().st_mode):
            raise OSError(f"{here} is no folder")
        for path in sorted(here.iterdir()):
            seen += 1
            if seen > CACHE_FILES:
                raise OSError("the compile cache holds too many files to keep")
            status = path.lstat()
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)


def _save(source: Path, saved: Path) -> None:
    if not any(stat.S_ISREG(status.st_mode) for _, status in _walk(source)):
        return
    saved.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=saved.parent))
    try:
        copy_plain_files(source, fresh)
        shutil.rmtree(saved, ignore_errors=True)
        fresh.rename(saved)
        os.utime(saved, (time.time(), time.time()))
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _prune(cache_root: Path) -> None:
    entries = sorted(cache_root.iterdir(), key=lambda path: path.lstat().st_mtime)
    for path in entries[:-CACHE_ENTRIES]:
        shutil.rmtree(path, ignore_errors=True)
