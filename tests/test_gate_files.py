"""What a pull request may put into a checkout, and what a gate keeps its hands off all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from harness import bundle, environment, machine, pool
from harness.compile_cache import cache_key
from harness.devices import nvml
from harness.model import Job, Mode
from harness.revision import repository
from harness.sources import read_submission
from tests.gate_fakes import DOUBLE, FakeJudge, gate, stand_in, write


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> FakeJudge:
    fake = FakeJudge()
    monkeypatch.setattr(pool, "run_job", fake)
    return fake


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout to stand in: a repository that is a task, with two committed submissions."""
    folder = stand_in(tmp_path, monkeypatch)
    write(folder, "good", "better")
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    words = ["git", *identity, *arguments]
    return subprocess.check_output(words, cwd=folder, text=True, stderr=subprocess.DEVNULL).strip()


def commit(folder: Path) -> None:
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "-m", "more")


def judged(judge: FakeJudge) -> list[str]:
    return [Path(job.submission.path).name for job in judge.seen][2:]  # after the controls


# -- a file that is called as the pattern ---------------------------------------------------------


def test_a_file_called_as_the_pattern_does_not_stand_for_it(root: Path, judge: FakeJudge) -> None:
    write(root, "*", "wrong")
    assert gate("submissions/*.py") == 1
    assert judged(judge) == ["*.py", "better.py", "good.py", "wrong.py"]


def test_a_name_with_brackets_is_a_file_that_is_judged(root: Path, judge: FakeJudge) -> None:
    write(root, "a[1]")
    assert gate("submissions/a[1].py") == 0
    assert judged(judge) == ["a[1].py"]


# -- names that are options -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["--baseline=slow.py", "--problem=.py", "-h.py", "--strict", "--"])
def test_a_file_whose_name_reads_as_an_option_is_refused(
    name: str,
    root: Path,
    judge: FakeJudge,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(root / "submissions")
    if name == "--strict":
        Path(name).symlink_to("nothing")
    else:
        Path(name).touch()
    assert gate(name, "better.py", "good.py") == 2  # as a shell expands *
    said = "is a file here and reads as an option; quote the pattern, which the gate expands itself"
    assert capsys.readouterr().err == f"harness: {name}: {said}, or begin it with ./\n"
    assert judge.seen == []


def test_a_quoted_pattern_and_two_dashes_make_every_name_a_file(
    root: Path, judge: FakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "submissions")
    write(root, "--problem=wrong")
    for files in (["*.py"], ["--", "--problem=wrong.py", "better.py", "good.py"]):
        judge.seen.clear()
        gate("--no-cache", *files)
        assert judged(judge) == ["--problem=wrong.py", "better.py", "good.py"]


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--baseline", ["HEAD", "submissions/good.py"]),
        ("--problem", [".", "."]),
        ("--max-slowdown", ["1", "1000"]),
        ("--device", ["cpu", "auto"]),
        ("--cache", ["../a", "../b"]),
        ("--junit", ["a.xml", "b.xml"]),
        ("--changed", ["HEAD", "HEAD"]),
    ],
)
def test_an_option_of_one_value_is_given_once(
    option: str,
    values: list[str],
    root: Path,
    judge: FakeJudge,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = values
    assert gate(option, first, "submissions/good.py", f"{option}={second}") == 2
    assert capsys.readouterr().err == f"harness: {option} is given 2 times; give it once\n"
    assert judge.seen == []


def test_what_may_be_given_again_is(root: Path, judge: FakeJudge) -> None:
    kinds = [f"--allow-unverified={kind}" for kind in OPTIONS]
    assert gate("submissions/good.py", *kinds, "--quiet", "--quiet") == 0


# -- two tasks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", ["kernels/subs", ".", "a"])
@pytest.mark.parametrize("stand", [".", "kernels", "kernels/subs"])
def test_of_two_tasks_a_pull_request_may_have_brought_one(
    theirs: str,
    stand: str,
    tmp_path: Path,
    judge: FakeJudge,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    top = tmp_path / "top"
    kernels = top / "kernels"
    shutil.copytree(root, kernels, ignore=shutil.ignore_patterns(".git"))
    (kernels / "submissions").rename(kernels / "subs")
    (top / "a").mkdir()
    (top / "a" / "zeros.py").write_text((kernels / "subs" / "good.py").read_text())
    git(top, "init", "-q")
    monkeypatch.chdir(top / stand)
    assert gate("--no-cache", *kernels.glob("subs/*.py")) == 0
    assert {job.task_root for job in judge.seen} == {str(kernels)}

    shutil.copytree(DOUBLE, top / theirs, dirs_exist_ok=True)
    judge.seen.clear()
    capsys.readouterr()
    files = sorted([*top.glob("a/*.py"), *kernels.glob("subs/*.py")])
    assert gate("--no-cache", *files) == 2
    said = capsys.readouterr().err
    assert str(kernels) in said and str((top / theirs).resolve()) in said
    assert "both hold a shapes.yaml" in said and "--problem" in said
    assert judge.seen == []
    assert gate("--no-cache", *files, "--problem", kernels) == 0
    assert {job.task_root for job in judge.seen} == {str(kernels)}


def test_a_repository_of_its_own_in_another_tasks_folder_has_one_task(
    tmp_path: Path, root: Path, judge: FakeJudge
) -> None:
    shutil.copytree(DOUBLE, tmp_path, dirs_exist_ok=True)
    assert gate("submissions/good.py") == 0
    assert {job.task_root for job in judge.seen} == {str(root)}


# -- modules in the checkout ----------------------------------------------------------------------

#: What torch, rich, click or our own launcher import, or would if it were there.
WANTED = ("opt_einsum", "tqdm", "dill", "attr", "IPython", "click", "json", "select", "ctypes")


@pytest.fixture
def installed_in_place() -> Iterator[Path]:
    """A checkout with harness and a task, which a .pth file of `bin/python` puts on every path.

    Not below pytest's folders, which are closed to other users.
    """
    with tempfile.TemporaryDirectory(prefix="harness-test-") as name:
        os.chmod(name, 0o755)
        root = Path(name) / "checkout"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(DOUBLE, root, ignore=ignored)
        shutil.copytree(Path(harness.__file__).parent, root / "harness", ignore=ignored)
        venv.create(Path(name) / "venv", symlinks=True)
        (packages,) = Path(name).glob("venv/lib/*/site-packages")
        paths = [*environment.site_directories(), root]
        (packages / "in_place.pth").write_text("".join(f"{path}\n" for path in paths))
        yield root


@pytest.mark.parametrize(
    ("start", "isolation"),
    [
        (["-P", "-c", "import harness.cli; harness.cli.main()"], "auto"),  # as the program does
        (["-m", "harness"], "off"),
    ],
    ids=["program", "module"],
)
def test_nothing_that_lies_at_the_root_of_a_checkout_is_imported(
    start: list[str], isolation: str, installed_in_place: Path
) -> None:
    root, seen = installed_in_place, installed_in_place.parent / "seen"
    seen.mkdir()
    seen.chmod(0o777)
    for name in WANTED:
        mark = f"open({str(seen / name)!r}, 'w')\nraise ImportError\n"
        (root / f"{name}.py").write_text(mark)
    (root / "entry.py").write_text("def custom_kernel(data):\n    return data[0] * 3\n")
    options = ["--device", "cpu", "--quiet", "--no-cache", "--isolation", isolation]
    done = subprocess.run(
        [root.parent / "venv/bin/python", *start, "gate", "entry.py", *options],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert sorted(path.name for path in seen.iterdir()) == []
    assert done.returncode == 1, done.stderr
    assert "wrong_answer" in done.stdout


# -- verdicts in the checkout ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", [".verdicts", "link", "out", "inner/kept", "../checkout/kept", "elsewhere"]
)
def test_verdicts_are_never_read_from_the_checkout(
    where: str,
    root: Path,
    judge: FakeJudge,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (root / "link").symlink_to(".verdicts")
    (root / "out").symlink_to("../given")
    (root / "inner").mkdir()
    git(root / "inner", "init", "-q")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(root.parent / "checkout"))
    if where == "elsewhere":
        where = str(root / "x")
        monkeypatch.chdir(root.parent)
    assert gate(root / "submissions" / "good.py", "--cache", where) == 2
    checkout = root.parent / "checkout" if "checkout" in where else root
    said = capsys.readouterr().err
    assert f"harness: --cache {where}: lies in the checkout {checkout}, where a pull" in said
    assert "or use --no-cache" in said
    assert judge.seen == []
    assert gate(root / "submissions" / "good.py", "--cache", where, "--no-cache") == 0


def test_a_default_folder_in_the_checkout_is_a_warning_and_neither_read_nor_written(
    root: Path,
    judge: FakeJudge,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert gate("submissions/good.py") == 0
    (root.parent / "cache").rename(root / ".cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / ".cache"))
    before = set((root / ".cache").rglob("*"))
    judge.seen.clear()
    assert gate("submissions/*.py") == 0
    assert judged(judge) == ["better.py", "good.py"]
    folder = root / ".cache" / "kernel-harness"
    assert f"harness: warning: {folder}: lies in the checkout {root}" in capsys.readouterr().err
    assert set((root / ".cache").rglob("*")) == before


#: Wrong where its compile cache has something for it.
COMPILED = """
import os
found = os.path.exists(os.environ["XDG_CACHE_HOME"] + "/made")

def custom_kernel(data):
    return data[0] * (3 if found else 2)
"""


def test_code_that_a_checkout_brings_as_compiled_is_not_run(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is found by a hash of the source and public versions: a stranger's for the baseline."""
    (root / "submissions" / "compiled.py").write_text(COMPILED)
    source = read_submission(root / "submissions" / "compiled.py", None).sha256
    key = cache_key(source, *(f"{name}={version}" for name, version in machine.versions()))
    entry = machine.cache_folder() / "compiled" / key / "xdg"
    entry.mkdir(parents=True)
    (entry / "made").touch()
    assert gate("submissions/compiled.py", "--no-cache") == 1, "outside of a checkout it is used"
    assert not entry.exists(), "a run that fails forgets what it had compiled"

    entry.mkdir(parents=True)
    (entry / "made").touch()
    (root.parent / "cache").rename(root / ".cache")
    monkeypatch.setenv("XDG_CACHE_HOME", ".cache")
    before = {path: path.stat().st_mtime_ns for path in (root / ".cache").rglob("*")}
    capsys.readouterr()
    assert gate("submissions/compiled.py", "--no-cache") == 0
    said = capsys.readouterr().err
    assert said.count("warning") == 1 and "compiled code, so nothing is read or kept there" in said
    assert {path: path.stat().st_mtime_ns for path in (root / ".cache").rglob("*")} == before
    assert os.environ["XDG_CACHE_HOME"] == ".cache"


def test_nor_from_the_repository_around_the_task_or_the_one_it_is_a_submodule_of(
    root: Path, judge: FakeJudge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top = tmp_path / "top"
    (top / "tasks").mkdir(parents=True)
    git(top, "init", "-q")
    git(top, "-c", "protocol.file.allow=always", "submodule", "add", str(root), "tasks/double")
    file = top / "tasks" / "double" / "submissions" / "good.py"
    assert gate(file, "--problem", top / "tasks" / "double", "--cache", top / "kept") == 2
    assert f"lies in the checkout {top}, where" in capsys.readouterr().err


def test_a_home_that_is_a_repository_too_keeps_verdicts(
    root: Path, judge: FakeJudge, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q")
    assert gate("submissions/good.py") == 0
    assert list((tmp_path / "cache" / "kernel-harness" / "verdicts").glob("*.json"))


# -- a baseline that is a file and a revision -----------------------------------------------------


@pytest.mark.parametrize("name", ["main", "origin/main", "base.py", "commit"])
def test_a_baseline_that_is_a_file_and_a_revision_is_refused(
    name: str, root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    head = git(root, "rev-parse", "HEAD")
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(root, "branch", "base.py")
    name = head if name == "commit" else name
    path = root / name
    path.parent.mkdir(exist_ok=True)
    good = read_submission(root / "submissions" / "good.py", None)
    if name == "base.py":
        path.write_text(good.source)
    else:
        run = judge(Job(str(root), good, "cpu", Mode.BENCHMARK, processes=2), lambda step: None)
        path.write_bytes(bundle.dumps(bundle.make([run], with_source=True)))
        judge.seen.clear()
    whole = {
        "main": "refs/heads/main",
        "origin/main": "refs/remotes/origin/main",
        "base.py": head,  # the branch's whole name ends in .py, as a file's does
    }.get(name, f"{head}^0")
    assert gate("submissions/good.py", "--baseline", name) == 2
    assert capsys.readouterr().err == (
        f"harness: --baseline {name}: is a file and a revision of git; say ./{name} for the file, "
        f"or {whole} for the revision\n"
    )
    assert judge.seen == []
    for text in (f"./{name}", whole):
        assert gate("submissions/good.py", "--baseline", text) == 0


def test_a_whole_name_that_is_a_file_too_leaves_the_commit(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "refs" / "heads").mkdir(parents=True)
    (root / "refs" / "heads" / "main").write_text("{}")
    assert gate("submissions/good.py", "--baseline", "refs/heads/main") == 2
    assert f"or {git(root, 'rev-parse', 'HEAD')} for the revision" in capsys.readouterr().err


def test_an_older_shapes_file_nested_without_end_is_refused(
    root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    good = (root / "shapes.yaml").read_text()
    (root / "shapes.yaml").write_text("[" * 5000)
    commit(root)
    (root / "shapes.yaml").write_text(good)
    assert gate("submissions/good.py", "--baseline", "HEAD") == 2
    said = "harness: HEAD:shapes.yaml: its ranked shapes cannot be read (nested too deeply)\n"
    assert capsys.readouterr().err == said


# -- bytes that .gitattributes changes ------------------------------------------------------------


def retold(root: Path, attribute: str, folder: str) -> None:
    """Commit a text with `$Id$`, then an attribute alone, and check out what that makes of it."""
    path = root / folder / "__init__.py" if folder != "submissions" else root / folder / "retold.py"
    text = (
        path.read_text() if path.exists() else "def custom_kernel(data):\n    return data[0] * 2\n"
    )
    path.write_text(f"# $Id$\n{text}")
    commit(root)
    before = path.read_bytes()
    git(root, "checkout", "-q", "-b", "pr")
    (root / ".gitattributes").write_text(f"{path.name} {attribute}\n")
    git(root, "add", ".gitattributes")
    git(root, "commit", "-q", "-m", "an attribute")
    path.unlink()
    git(root, "checkout", "--", str(path))
    assert path.read_bytes() != before
    assert path not in repository(root).changed_since("main"), "as git sees it"


@pytest.mark.parametrize("attribute", ["ident", "text eol=crlf", "working-tree-encoding=UTF-16"])
def test_a_text_that_an_attribute_changed_is_judged_again(
    attribute: str, root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    retold(root, attribute, "submissions")
    if "UTF-16" in attribute:  # no Python source, and no longer left out unseen
        assert gate("submissions/*.py", "--changed", "main") == 2
        assert "submissions/retold.py: not Python source" in capsys.readouterr().err
        return
    assert gate("submissions/*.py", "--changed", "main") == 0
    assert judged(judge) == ["retold.py"]
    assert "2 unchanged and left out" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["task", "reference"])
def test_a_task_that_an_attribute_changed_rejudges_all(
    folder: str, root: Path, judge: FakeJudge
) -> None:
    retold(root, "ident", folder)
    assert gate("submissions/*.py", "--changed", "main") == 0
    assert judged(judge) == ["better.py", "good.py"]


def test_many_files_are_compared_by_one_listing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(root, *(f"s{number}" for number in range(300)))
    commit(root)
    where, asked = repository(root), []
    run = subprocess.run

    def counted(words: list[str], **rest: object) -> object:
        asked.append(words)
        return run(words, **rest)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", counted)
    paths[7].write_text("# edited\n")
    paths[8].unlink()
    same = where.same_since(where.commit("HEAD"), [*paths, root / "submissions" / "new.py"])
    assert same == frozenset(paths) - {paths[7], paths[8]}
    assert len(asked) == 3


# -- links to submissions -------------------------------------------------------------------------


@pytest.mark.parametrize("checkout", ["with git", "the job's"])
def test_a_link_beside_the_task_compares_no_submission_with_itself(
    checkout: str,
    root: Path,
    judge: FakeJudge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At the baseline's commit, too, `team/good.py` behind `team -> old` is `old/good.py`."""
    top = tmp_path / "top"
    shutil.copytree(root, top / "problems" / "double", ignore=shutil.ignore_patterns(".git"))
    (top / "problems" / "double" / "submissions").rename(top / "old")
    (top / "team").symlink_to("old")
    (tmp_path / "disk").symlink_to("top")
    if checkout == "with git":
        git(top, "init", "-q")
    else:
        monkeypatch.setenv("GITHUB_WORKSPACE", str(top))
    task = f"--problem={top}/problems/double"
    for stand, name in ((top, "team"), (tmp_path, "top/team"), (tmp_path, "disk/team")):
        monkeypatch.chdir(stand)
        assert gate(f"{name}/good.py", task) == 2
        said = f"{name}/good.py: lies behind {top}/team, which is a link; the gate judges files"
        assert said in capsys.readouterr().err
    assert judge.seen == []
    assert gate("disk/old/good.py", task) == 0, "a link to the checkout is its owner's"


@pytest.mark.parametrize("way", ["out", "far", "up/../out"])
def test_a_link_of_the_checkout_is_seen_behind_one_that_leads_to_it(
    way: str, root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path as typed shows `out` alone, and that is its owner's."""
    top = root.parent
    (top / "secrets").mkdir()
    (top / "secrets" / "x.py").write_bytes((root / "submissions" / "good.py").read_bytes())
    (root / "linked").symlink_to("../secrets")
    commit(root)
    (top / "out").symlink_to(root / "linked")
    (top / "far").symlink_to("out")
    (top / "up").symlink_to("secrets")
    assert gate(top / way / "x.py", "--problem", ".") == 2
    said = f"x.py: lies behind {root}/linked, which is a link; the gate judges files"
    assert said in capsys.readouterr().err
    for option, name in (("--junit", "gate.xml"), ("--cache", "kept")):
        assert gate("submissions/good.py", option, top / way / name) == 2
        assert f"{option} {top / way / name}: lies " in capsys.readouterr().err
    (top / "gate.xml").symlink_to("out/gate.xml")
    assert gate("submissions/good.py", "--junit", top / "gate.xml") == 2
    assert judge.seen == []
    assert [path.name for path in (top / "secrets").iterdir()] == ["x.py"]


def test_a_loop_of_links_ends(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root.parent / "a").symlink_to("b")
    (root.parent / "b").symlink_to("a")
    assert gate(root.parent / "a" / "x.py", "--problem", ".") == 2
    assert "a/x.py: " in capsys.readouterr().err


# -- reports over other people's files ------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        (
            "--junit",
            "README.md",
            "it is no earlier --junit report of a gate",
        ),
        (
            "--markdown",
            "notes.md",
            "it is no earlier --markdown report",
        ),
        (
            "--markdown",
            "r.xml",
            "it is no earlier --markdown report",
        ),
        ("--junit", "kept.xml", "git keeps this file, so no report replaces it"),
        ("--junit", "empty.xml", "git keeps this file, so no report replaces it"),
        ("--junit", "link.xml", "git keeps this file, so no report replaces it"),
        ("--junit", "dangling.xml", "git keeps this file, so no report replaces it"),
    ],
)
def test_a_report_replaces_nothing_but_an_earlier_one(
    option: str,
    name: str,
    said: str,
    root: Path,
    judge: FakeJudge,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (root / "README.md").write_text("# double\n")
    assert gate("submissions/good.py", "--junit", "r.xml") == 0
    (root / "kept.xml").write_bytes((root / "r.xml").read_bytes())
    (root / "empty.xml").touch()
    (root / "link.xml").symlink_to("../outside.xml")
    (root / "dangling.xml").symlink_to("../nothing.xml")
    (root.parent / "outside.xml").touch()
    commit(root)
    git(root, "rm", "-q", "--cached", "r.xml")
    (root / "notes.md").write_text("mine, and not committed\n")
    before = {path: path.read_bytes() for path in root.glob("*.*") if path.is_file()}
    judge.seen.clear()
    assert gate("submissions/good.py", option, name, "--no-cache") == 2
    error = capsys.readouterr().err
    assert f"harness: {option} {name}: " in error and said in error
    assert "name another file" in error
    assert judge.seen == []
    assert {path: path.read_bytes() for path in root.glob("*.*") if path.is_file()} == before
    assert not (root.parent / "nothing.xml").exists()


def test_an_earlier_report_an_empty_file_and_a_pipe_are_written_to(
    root: Path, judge: FakeJudge
) -> None:
    (root / "made.md").touch()  # as mktemp does
    reports = ["--junit", "out/r.xml", "--markdown", "made.md"]
    write(root, "wrong")
    assert gate("submissions/good.py", *reports) == 0
    first = [(root / name).read_text() for name in ("out/r.xml", "made.md")]
    assert gate("submissions/wrong.py", *reports) == 1
    second = [(root / name).read_text() for name in ("out/r.xml", "made.md")]
    assert "wrong_answer" in second[0] and "wrong_answer" in second[1]
    assert first != second
    assert gate("submissions/good.py", "--junit", "/dev/null") == 0


@pytest.mark.parametrize("name", ["report/gate.xml", "report/new/gate.xml", "a/../report/gate.xml"])
def test_a_report_follows_no_link_out_of_the_checkout(
    name: str, root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = root.parent / "outside"
    assert gate("submissions/good.py", "--junit", outside.with_suffix(".xml")) == 0
    outside.mkdir()
    outside.with_suffix(".xml").rename(outside / "gate.xml")
    before = (outside / "gate.xml").read_bytes()
    (root / "report").symlink_to("../outside")
    (root / "a").mkdir()
    commit(root)
    judge.seen.clear()
    assert gate("submissions/good.py", "--junit", name, "--no-cache") == 2
    said = capsys.readouterr().err
    assert f"harness: --junit {name}: lies behind {root}/" in said
    assert "report, which is a link in the checkout; name what it points to\n" in said
    assert judge.seen == []
    assert (outside / "gate.xml").read_bytes() == before
    assert [path.name for path in outside.iterdir()] == ["gate.xml"]


def test_a_report_may_follow_a_link_that_no_checkout_holds(root: Path, judge: FakeJudge) -> None:
    (root.parent / "disk").mkdir()
    (root.parent / "reports").symlink_to("disk")
    (root.parent / "here").symlink_to(root)
    assert gate("submissions/good.py", "--junit", "../reports/gate.xml") == 0
    assert gate("submissions/good.py", "--junit", root.parent / "here" / "gate.xml") == 0
    assert (root / "gate.xml").exists() and (root.parent / "disk" / "gate.xml").exists()


@pytest.mark.parametrize("named", ["by process", "as drawn"])
def test_a_report_is_not_written_through_a_link_where_its_first_half_would_be(
    named: str, root: Path, judge: FakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull request committed `.gate.xml.PID` for thousands of process numbers."""
    (root / "README.md").write_text("precious\n")
    (root / "report").mkdir()
    if named == "as drawn":
        monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    name = ".guessed.new" if named == "as drawn" else f".gate.xml.{os.getpid()}"
    link = root / "report" / name
    link.symlink_to("../README.md")
    written = gate("submissions/good.py", "--junit", "report/gate.xml") == 0
    assert written is (named == "by process"), "a name that is taken is an error"
    assert (root / "README.md").read_text() == "precious\n"
    assert link.is_symlink()
    assert (root / "report" / "gate.xml").exists() is written


def test_a_report_has_the_mode_of_an_ordinary_new_file_and_leaves_no_half(
    root: Path, judge: FakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o027)
    try:
        assert gate("submissions/good.py", "--junit", "out/r.xml") == 0
    finally:
        os.umask(before)
    assert (root / "out" / "r.xml").stat().st_mode & 0o777 == 0o640

    def broken(self: Path, end: Path) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", broken)
    assert gate("submissions/good.py", "--junit", "out/r.xml") == 3
    assert [path.name for path in (root / "out").iterdir()] == ["r.xml"]


@pytest.mark.parametrize("kind", ["relative", "absolute"])
def test_no_folder_is_made_outside_of_the_current_one(
    kind: str, root: Path, judge: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = "../missing/a" if kind == "relative" else f"{root.parent}/missing/a"
    assert gate("submissions/good.py", "--junit", f"{folder}/r.xml") == 2
    assert capsys.readouterr().err == (
        f"harness: --junit {folder}/r.xml: cannot be written (there is no folder {folder}); make "
        "it, or name a file below the current folder\n"
    )
    assert judge.seen == []
    assert not (root.parent / "missing").exists()


# -- the device in the key ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "other", "kept"), [(0, "cpu", True), (1, "cuda:0", True), (1, "cpu", False)]
)
def test_a_verdict_is_found_again_under_the_devices_other_name(
    count: int,
    other: str,
    kept: bool,
    root: Path,
    judge: FakeJudge,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from harness.devices import present

    monkeypatch.setattr(nvml, "count", lambda: count)
    monkeypatch.setattr(present, "torch_has_cuda", lambda: True)
    assert gate("submissions/good.py") == 0
    assert {job.device for job in judge.seen} == {"cuda:0" if count else "cpu"}
    judge.seen.clear()
    assert gate("submissions/good.py", "--device", other) == 0
    assert (judge.seen == []) is kept


# -- the last sentence ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["submissions/g*.py"],
            "1 verified, 1 not verified; --allow-unverified unsupported lets pass what this device "
            "cannot run (exit code 1)",
        ),
        (
            ["submissions/good.py", "--changed", "HEAD"],
            "nothing was verified (1 unchanged and left out); --allow-unverified unchanged lets "
            "pass a gate that has nothing to judge (exit code 1)",
        ),
        (
            ["submissions/[gn]*.py", "--baseline", "HEAD"],
            "1 verified, 2 not verified; --allow-unverified unsupported lets pass what this device "
            "cannot run; --allow-unverified no-baseline lets pass what has no baseline "
            "(exit code 1)",
        ),
        (["submissions/partial.py"], "1 not verified (exit code 1)"),
    ],
)
def test_the_last_sentence_names_what_would_let_it_through(
    arguments: list[str],
    said: str,
    root: Path,
    judge: FakeJudge,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(root, "gpu", "new", "partial")
    assert gate(*arguments, "--markdown", "r.md") == 1
    assert said in capsys.readouterr().out.replace("\n", " ")
    assert said.removesuffix(" (exit code 1)") in (root / "r.md").read_text()
    options = [word for word in said.replace(";", "").split() if word in OPTIONS]
    allow = [word for option in options for word in ("--allow-unverified", option)]
    if allow:
        assert gate(*arguments, *allow) == 0
        assert "--allow-unverified" not in capsys.readouterr().out


OPTIONS = ("unsupported", "unchanged", "no-baseline")
