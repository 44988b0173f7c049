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
from collections.abc import Iterator
from pathlib import Path

from harness.errors import SandboxError

#: Compiled code of one submission larger than this is built again next time.
CACHE_BYTES = 512 << 20
#: Submissions whose compiled code is kept; the longest unused go first.
CACHE_ENTRIES = 64
#: Inside the scratch folder: what the environment of sandbox.worker_environment points at.
CACHE_FOLDER = "cache"


def cache_key(*parts: str) -> str:
    """Name a cache entry by everything that decides what a compiler would produce."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@contextlib.contextmanager
def scratch_folder(key: str, cache_root: Path) -> Iterator[Path]:
    """Yield a fresh private folder holding the key's compile cache; keep that cache afterwards.

    The path depends on the key alone where possible, since build systems write absolute paths into
    what they reuse; a second run of the same submission beside the first gets another path.
    Raises SandboxError when no folder can be made.
    """
    with contextlib.ExitStack() as stack:
        folder = _claim(Path(tempfile.gettempdir()) / f"harness-{os.getuid()}-{key[:16]}", stack)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        saved = cache_root / key
        (folder / CACHE_FOLDER).mkdir()
        with contextlib.suppress(OSError):
            copy_plain_files(saved, folder / CACHE_FOLDER)
        if os.getuid() == 0:
            _open_up(folder / CACHE_FOLDER)
        yield folder
        with contextlib.suppress(OSError):
            _save(folder / CACHE_FOLDER, saved)
            _prune(cache_root)


def _claim(path: Path, stack: contextlib.ExitStack) -> Path:
    """Create `path`, or a path of its own when another run holds it."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)  # of a run that was killed
        path.mkdir(mode=0o700)
    except (BlockingIOError, FileExistsError):
        return Path(tempfile.mkdtemp(prefix="harness-"))
    except OSError as error:
        raise SandboxError(
            f"{path}: cannot create a scratch folder ({error.strerror}): set TMPDIR to a folder "
            "that can be written"
        ) from None
    return path


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
    """Copy regular files and folders only, times kept, no links followed, no locks, size-capped.

    Raises OSError when the tree is larger than CACHE_BYTES or cannot be read.
    """
    total = 0
    for folder, names, files in os.walk(source, followlinks=False):
        names[:] = [n for n in names if not (Path(folder) / n).is_symlink()]
        here = target / Path(folder).relative_to(source)
        here.mkdir(exist_ok=True)
        for name in files:
            path = Path(folder) / name
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or name in ("lock", ".ninja_lock"):
                continue
            total += status.st_size
            if total > CACHE_BYTES:
                raise OSError("the compile cache is too large to keep")
            shutil.copy2(path, here / name, follow_symlinks=False)
        with contextlib.suppress(OSError):
            shutil.copystat(folder, here, follow_symlinks=False)


def _save(source: Path, saved: Path) -> None:
    if not any(files for _, _, files in os.walk(source)):
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
