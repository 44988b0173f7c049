"""A worker's folder is measured and removed, whatever the worker has made of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import compile_cache, scratch
from harness.compile_cache import copy_plain_files, scratch_folder

LEVELS = 1100  # beyond Python's stack, and beyond the longest path


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder for hostile trees, and none of pytest's.

    One that a failed test leaves would end every later pytest of this user, which removes old
    folders with shutil.rmtree: hence also `rm`, which no defence taken away here can stop.
    """
    folder = Path(tempfile.mkdtemp(prefix="harness-ground-"))
    yield folder
    subprocess.run(["chmod", "-R", "u+rwx", folder], check=True)
    subprocess.run(["rm", "-rf", folder], check=True)


def dig(folder: Path, levels: int) -> None:
    """Make a chain of folders that no path can name."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_remove_leaves_nothing_of_a_hostile_tree(ground: Path) -> None:
    victim = ground / "victim"
    victim.mkdir()
    (victim / "kept").write_text("kept")
    folder = ground / "scratch"
    folder.mkdir()
    dig(folder, LEVELS)
    os.mkfifo(folder / "pipe")
    (folder / ("n" * 255)).write_text("")
    (folder / "link").symlink_to(victim)
    (folder / "closed").mkdir()
    (folder / "closed/inner").mkdir()
    (folder / "closed/link").symlink_to(victim)
    (folder / "closed").chmod(0)
    folder.chmod(0)
    scratch.remove(folder)
    assert [path.name for path in ground.iterdir()] == ["victim"]
    assert (victim / "kept").read_text() == "kept"


def test_remove_takes_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    scratch.remove(tmp_path / "link")
    scratch.remove(tmp_path / "absent")
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]


def test_what_lies_too_deep_to_be_counted_is_too_much(ground: Path) -> None:
    dig(ground, LEVELS)
    assert scratch.usage(ground)[1] > scratch.MAX_FILES
    scratch.remove(ground / "deep")


def test_a_link_in_the_place_of_a_cache_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("key")
    (tmp_path / "cache").symlink_to(tmp_path / "secret")
    (tmp_path / "saved").mkdir()
    with pytest.raises(OSError, match="no folder"):
        copy_plain_files(tmp_path / "cache", tmp_path / "saved")
    assert not list((tmp_path / "saved").iterdir())


def test_links_inside_a_cache_are_left_out_and_files_keep_their_times(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "inner").mkdir(parents=True)
    target.mkdir()
    (source / "inner/k.so").write_bytes(b"code")
    os.utime(source / "inner/k.so", ns=(10**18, 10**18))
    (source / "inner/lock").write_text("")
    (source / "inner/link").symlink_to("/etc/passwd")
    (source / "folder").symlink_to("/etc")
    copy_plain_files(source, target)
    files = [path for path in target.rglob("*") if not path.is_dir()]
    assert files == [target / "inner/k.so"]
    assert files[0].stat().st_mtime_ns == 10**18


def test_no_strangers_setuid_bit_is_on_what_is_kept(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "sh").write_bytes(b"#!")
    (source / "sh").chmod(0o6755)
    copy_plain_files(source, target)
    assert (target / "sh").stat().st_mode & 0o7777 == 0o755


def test_a_cache_that_is_too_large_or_has_too_many_files_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(4):
        (source / f"{number}").write_bytes(b"x" * 100)
    for name, limit in (("CACHE_BYTES", 399), ("CACHE_FILES", 3)):
        monkeypatch.setattr(compile_cache, name, limit)
        (tmp_path / name).mkdir()
        with pytest.raises(OSError, match="to keep"):
            copy_plain_files(source, tmp_path / name)
        monkeypatch.undo()


def test_the_oldest_caches_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "CACHE_ENTRIES", 2)
    for age, name in enumerate(("new", "middle", "old", "older")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (10**9 - age, 10**9 - age))
    compile_cache._prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "middle"}


def _always() -> bool:
    return True


def test_what_a_failed_run_compiled_is_forgotten_and_what_was_kept_before_it(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed compiler leaves an empty library, and the next run found it: for ever."""
    monkeypatch.setattr("tempfile.tempdir", str(ground))
    entry = ground / "kept" / ("3" * 32)
    for passed in (True, False):
        with scratch_folder("3" * 32, ground / "kept", lambda: passed) as folder:  # noqa: B023
            (folder / "cache" / "main.so").touch()
        assert entry.exists() is passed


def test_a_hostile_cache_is_not_kept_and_its_run_leaves_nothing(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(ground))
    with scratch_folder("0" * 32, ground / "kept", _always) as folder:
        dig(folder / "cache", LEVELS)
    with scratch_folder("1" * 32, ground / "kept", _always) as folder:
        (folder / "cache").rmdir()
        (folder / "cache").symlink_to("/etc")
    assert {path.name for path in ground.iterdir()} <= {"kept"}
    assert not [p for p in ground.rglob("kept/*") if p.name in ("0" * 32, "1" * 32)]


def test_runs_of_one_text_beside_each_other_have_folders_of_their_own(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(ground))
    with scratch_folder("2" * 32, ground / "kept", _always) as first:
        with scratch_folder("2" * 32, ground / "kept", _always) as second:
            assert first != second
        with scratch_folder("2" * 32, ground / "kept", _always) as third:
            assert third not in (first, second)
    with scratch_folder("2" * 32, ground / "kept", _always) as again:
        assert again == first


def test_a_lock_whose_file_was_removed_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.lock"
    real, calls = fcntl.flock, 0

    def flock(lock: int, how: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            path.unlink()  # its holder ends here, after this one opened it
        real(lock, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with contextlib.ExitStack() as stack:
        compile_cache._lock(path, stack)
        assert path.exists() and calls == 2
        with contextlib.ExitStack() as other, pytest.raises(BlockingIOError):
            compile_cache._lock(path, other)
        assert path.exists()
    assert not path.exists()


def test_a_folder_is_emptied_only_when_it_holds_too_much(tmp_path: Path) -> None:
    for name in ("home", "tmp", "cache", "lib"):
        (tmp_path / name).mkdir()
    (tmp_path / "cache/k.so").write_bytes(b"x" * 100_000)
    scratch.relieve(tmp_path, 1 << 20)
    assert (tmp_path / "cache/k.so").exists()
    (tmp_path / "tmp/filler").write_bytes(b"x" * (2 << 20))
    (tmp_path / "home").rmdir()
    (tmp_path / "home").symlink_to("/etc")
    scratch.relieve(tmp_path, 1 << 20)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["cache", "home", "tmp"]
    assert (tmp_path / "home").is_dir() and not (tmp_path / "home").is_symlink()
