"""Which files `harness gate` judges: patterns, links, and what changed."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from harness.errors import UsageError

#: The task's folders that hold what decides a verdict.
TASK_FOLDERS = ("task", "reference", "controls")
#: With --changed, a change of one of these re-judges everything.
_TASK_PARTS = (*TASK_FOLDERS, "shapes.yaml")
#: Links on the way to a file beyond which Linux says that they are a loop.
_MOST_LINKS = 40


def expand(files: Sequence[str]) -> list[Path]:
    """Files as named, patterns that no shell expanded as they match; nothing found is an error.

    A file may be called `*.py`, to stand for the pattern: it is judged, and what matches as well.
    """
    found: list[Path] = []
    for name in files:
        if not glob.has_magic(name):
            found.append(Path(name))
            continue
        matches = {name} if os.path.lexists(name) else set()
        matches |= set(glob.glob(name, recursive=True))
        if not matches:
            raise UsageError(f"{name}: no file matches, so nothing would be verified")
        found += map(Path, sorted(matches))
    return found


def find_task(problem: Path | None, paths: Sequence[Path]) -> Path:
    """The one task's folder around the current folder and all files, in their checkouts.

    Of several a pull request may have brought one, with a reference of its own: inside of another,
    around it or beside it.  Then `problem` has to say which.
    """
    from harness.task import FILE, find_root

    places = [Path.cwd(), *(path.parent for path in paths)] if problem is None else []
    around = {folder for place in places for folder in _within_checkout(real(place))}
    found = sorted(folder for folder in around if (folder / FILE).is_file())
    if len(found) > 1:
        raise UsageError(
            f"{found[0]} and {found[1]} both hold a {FILE}, and a pull request may have brought "
            "one of them; name the task's folder with --problem"
        )
    return find_root(problem, Path.cwd(), paths[0])


def refuse_links(paths: Sequence[Path], root: Path, workspace: str | None) -> None:
    """Refuse links that a submission's author may have made: those in the task, or in any checkout.

    Through one, a report would quote any file that we can read, and a submission could be compared
    with itself.  How a checkout is reached is its owner's choice.
    """
    for path in paths:
        links = list(links_in_checkouts(path, root, workspace))
        if os.path.islink(path):
            what = "is a link"
        elif links:
            what = f"lies behind {links[0]}, which is a link"
        else:
            continue
        raise UsageError(f"{path}: {what}; the gate judges files: name what it points to")


def links_in_checkouts(path: Path, root: Path, workspace: str | None) -> Iterator[Path]:
    """The links on the way to a path that lie in the task's folder or in any checkout."""
    for link in links_on(path):
        checkouts = checkouts_of([link.parent], workspace) | {root}
        if not checkouts.isdisjoint(link.parents):
            yield link


def links_on(path: Path) -> Iterator[Path]:
    """Each link that is followed on the way to a path, its own included, by where it really lies.

    One outside of a checkout may lead to one inside, which no part of the path as typed shows.
    """
    place, left, followed = Path("/"), list(reversed((Path.cwd() / path).parts)), 0
    while left and followed < _MOST_LINKS:
        part = left.pop()
        step = place.parent if part == ".." else place / part  # of "/", that is "/"
        try:
            target = Path(os.readlink(step))
        except OSError:  # no link, or not there
            place = step
            continue
        yield step
        left += reversed(target.parts)
        followed += 1


def checkouts_of(folders: Iterable[Path], workspace: str | None) -> set[Path]:
    """The working trees that hold these folders, and the one of the CI's job."""
    found = {top for folder in folders for top in _tops(folder)}
    return found | ({real(Path(workspace))} if workspace else set())


def _tops(folder: Path) -> Iterator[Path]:
    """The working tree around a folder, and those that it is a submodule of."""
    for place in (folder, *folder.parents):
        mark = place / ".git"
        if mark.exists():
            yield place
        if mark.is_dir():
            return  # in a submodule, .git is a file


def _within_checkout(folder: Path) -> Iterator[Path]:
    """A folder and those above it: to the top of its checkout, or all where git knows of none."""
    *_, top = None, *_tops(folder)
    for place in (folder, *folder.parents):
        yield place
        if place == top:
            return


def distinct(paths: Sequence[Path]) -> list[Path]:
    """Each file once, under the first path that it was given by."""
    first: dict[Path, Path] = {}
    for path in paths:
        first.setdefault(real(path), path)
    return list(first.values())


def real(path: Path) -> Path:
    """Where a path leads; a loop of links is no error, as it is for Path.resolve."""
    return Path(os.path.realpath(path))


def judged(
    paths: Sequence[Path], root: Path, revision: str | None
) -> tuple[list[Path], tuple[str, ...]]:
    """The files to judge, and those that --changed leaves out: git has them, and as they were."""
    if revision is None:
        return list(paths), ()
    from harness.revision import repository

    where = repository(root)
    commit = where.commit(revision or _base_revision())
    touched, tracked = where.changed_since(commit), where.tracked()
    if _task_changed(root, touched, tracked, lambda files: where.same_since(commit, files)):
        return list(paths), ()
    same = tracked & where.same_since(commit, {real(path) for path in paths} - touched)
    kept = [path for path in paths if real(path) not in same]
    return kept, tuple(str(path) for path in paths if path not in kept)


def _task_changed(
    root: Path,
    touched: frozenset[Path],
    tracked: frozenset[Path],
    same: Callable[[set[Path]], frozenset[Path]],
) -> bool:
    """Whether the task or the harness may have changed, also behind links.

    A file of the task that git does not watch, ignored or in another repository, may have.  `same`
    tells which of some files have the bytes that they had.
    """
    import harness
    from harness import task

    read = [*task.parts(root), root / "controls", *(root / "controls").glob("*.py")]
    links = {real(path.parent) / path.name for path in read if path.is_symlink()}
    files = {real(path) for path in read if path.is_file()}
    if not tracked >= links | files:
        return True
    package = Path(harness.__file__).resolve().parent
    ours = links | {real(path) for path in read} | {root / part for part in _TASK_PARTS}
    ours.add(package)
    if any(path in ours or not ours.isdisjoint(path.parents) for path in touched):
        return True
    files |= {path for path in tracked if package in path.parents and not path.is_symlink()}
    return not same(files) >= files


def _base_revision() -> str:
    """What a pull request would be merged into; without one, what was committed last."""
    base = os.environ.get("GITHUB_BASE_REF", "")
    return f"origin/{base}" if base else "HEAD"
