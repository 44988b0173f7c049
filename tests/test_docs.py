"""README tells of every command, mode, verdict, doubt and exit code; what it names is there."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness import cli, task
from harness.cli import COMMANDS
from harness.model import Doubt, Isolation, Mode, Verdict

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
#: [text](target) with a target inside of this repository.
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)")
#: `path/to/file.ext` or `folder/` as prose names them.
NAMED = re.compile(
    r"`((?:harness|tests|task|reference|submissions|docs|benchmarks|examples|\.ci)/[\w./-]*)`"
)


def command_of(name: str) -> click.Command:
    """The command as the program finds it; a module may not be called `import`."""
    from harness.cli import main_group

    found = main_group.get_command(click.Context(main_group), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_readme(name: str) -> None:
    assert re.search(rf"`?harness {name}\b", README)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_each_of_its_options_has_help(name: str) -> None:
    command = command_of(name)
    assert (command.help or "").strip()
    silent = [
        option.name
        for option in command.params
        if isinstance(option, click.Option) and not (option.help or "").strip()
    ]
    assert silent == []


@pytest.mark.parametrize("word", [*Verdict, *Doubt, *Mode, *Isolation])
def test_every_verdict_doubt_mode_and_level_is_explained(word: str) -> None:
    assert f"`{word}`" in README


@pytest.mark.parametrize("code", range(4))
def test_every_exit_code_is_explained(code: int) -> None:
    assert re.search(rf"^\| {code} \| \S", README, re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_document_links_to_or_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    linked = [document.parent / target for target in LINK.findall(text)]
    named = [ROOT / target for target in NAMED.findall(text) if "NAME" not in target]
    given = [ROOT / target for target in re.findall(r"`(\S+)`:\n\n```", text)]
    missing = [str(path) for path in linked + named if not path.exists() and path not in given]
    assert missing == []


def test_the_two_commands_of_readme_are_those_that_ci_and_packaging_know() -> None:
    assert "pip install -e . && harness run submissions/torch_dequant.py" in README
    assert "pip install -e '.[test]' && pytest" in README
    assert (ROOT / "submissions/torch_dequant.py").exists()


def test_the_template_in_submissions_is_what_new_writes() -> None:
    written = (ROOT / "harness/templates/torch.py").read_text(encoding="utf-8")
    assert (ROOT / "submissions/template.py").read_text(encoding="utf-8") == written.replace(
        "NAME", "template"
    )


def test_the_changelog_knows_this_version() -> None:
    from harness import __version__

    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_what_an_error_says_to_install_is_what_the_readme_says() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("harness/**/*.py"))
    hints = set(re.findall(r"pip install -e '\.\[\w+\]'", sources))
    assert len(hints) == 2, "the page's and PostgreSQL's"
    assert [hint for hint in hints if hint not in README] == []


@pytest.fixture
def documented_task() -> Iterator[Path]:
    """The files of docs/tasks.md; not below pytest's folders, which are closed to other users."""
    text = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="harness-docs-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for words, content in re.findall(r"^(`[^\n]*):\n\n```\w+\n(.*?)^```", text, re.M | re.S):
            for path in re.findall(r"`([\w/]+\.\w+)`", words):
                (folder / path).parent.mkdir(exist_ok=True)
                (folder / path).write_text(content)
        yield folder


def test_the_task_of_the_documentation_runs_as_it_stands(
    documented_task: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(documented_task)
    arguments = ["submissions/rms_norm.py", "--device", "cpu", "--quiet", "--json"]
    assert cli.run(["gate", *arguments, "--no-cache"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["task"] == "rms_norm" and run["verdict"] == "passed"
    assert len(run["cases"]) == 5  # two tests; two families on one row, one on the other

    entry = documented_task / "submissions/rms_norm.py"
    entry.write_text(entry.read_text().replace(" * weight.float()", ""))
    assert cli.run(["run", *arguments, "--mode", "test", "--no-store"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert "the weight were ignored" in run["message"]


def test_every_part_of_a_task_is_documented() -> None:
    text = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    parts = {field.name for field in dataclasses.fields(task.TaskModules)} - {"writable"}
    assert [name for name in {*parts, "WRITABLE", *task.LIMITS} if name not in text] == []
    assert [key for key in task._KEYS if f"{key}:" not in text and key != "ranked_seed"] == []


def test_every_defence_that_is_taken_away_stands_where_the_table_says() -> None:
    """`.ci/mutation` takes minutes to find that one was written anew."""
    table = tomllib.loads((ROOT / ".ci/mutations.toml").read_text(encoding="utf-8"))["defence"]
    lost = [
        row["name"]
        for row in table
        if (ROOT / row["file"]).read_text(encoding="utf-8").count(row["old"]) != 1
    ]
    assert lost == []
    told = (ROOT / "docs/mutation.md").read_text(encoding="utf-8")
    assert [row["name"] for row in table if f"| {row['name']} |" not in told] == []
