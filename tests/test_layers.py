"""Imports go downwards only, heavy libraries stay where they belong, the worker's side is alone."""

from __future__ import annotations

import ast
import dataclasses
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import timing
from harness.cli import COMMANDS
from harness.model import Block, Stop
from harness.store import open_store
from tests.fakes import SHAPES, make_case, make_run

ROOT = Path(__file__).parents[1]

#: Bottom first.  A module imports from its own layer and those above it here, never from below;
#: `x.*` stands for every module of a package.
LAYERS: tuple[tuple[str, str], ...] = (
    ("values", "__init__ model errors names codec progress profile_values selftest_values"),
    ("arithmetic", "stats timing plan planned leaderboard samples slowdown compare confirm gate"),
    (
        "files",
        "strict_yaml task sources revision signature sqlite_file database store machine baseline "
        "bundle verdict_cache gate_controls whole_file",
    ),
    ("render", "render.*"),
    (
        "confinement",
        "landlock seccomp tree log scratch identity bubblewrap confine environment "
        "isolation_probe sandbox isolation compile_cache device_lock guard",
    ),
    ("channel", "exchange wire faults session window launch emulation"),
    ("devices", "devices.*"),
    ("worker", "worker call"),
    (
        "judge",
        "check lint memory prepare bench verdicts trial measure profile selftest judge "
        "judge_process",
    ),
    ("machine's own", "interrupts pool gatekeeper doctor"),
    ("commands", "commands.*"),
    ("command line", "cli __main__"),
)

#: Library -> the only layers or modules that may import it, anywhere in them.
OWNERS = {
    "sqlalchemy": {"sqlite_file", "database", "store"},
    "click": {"commands", "command line"},
    "rich": {"render", "commands"},
    "torch": {"channel", "devices", "worker", "judge", "task", "machine's own"},
    "yaml": {"strict_yaml", "baseline"},
    "pynvml": {"devices", "verdict_cache"},
    "cuda": {"devices"},
    "scipy": {"stats", "slowdown"},
    "plotly": {"render"},
    "jinja2": {"render"},
}

#: What a worker may load of ours: nothing that knows an expected output, a seed or a result.
WORKER_SIDE = {
    "worker", "faults", "wire", "emulation", "exchange", "devices.collect", "devices.observe",
    "devices.cpu_lane", "devices.cuda_lane", "devices.cuda_host_lane", "devices.bodies",
    "devices.driver",
}  # fmt: skip


def modules() -> dict[str, Path]:
    folder = ROOT / "harness"
    data = {folder / "templates", folder / "controls"}  # what is copied, not imported
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts): path
        for path in sorted(folder.rglob("*.py"))
        if not data & set(path.parents)
    }


def imports(path: Path) -> Iterator[str]:
    """Dotted names of what a file imports anywhere in it, each as far as it could be a module.

    Names for a type checker alone are not among them: nothing is imported when the code runs.
    """
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def graph() -> dict[str, set[str]]:
    known = modules()
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        found[name] = set()
        for target in imports(path):
            if target.split(".")[0] != "harness":
                continue
            inner = target.removeprefix("harness.")
            while inner not in known and "." in inner:
                inner = inner.rpartition(".")[0]
            found[name].add(inner if inner in known else "__init__")
        found[name].discard(name)
    return found


def layer(name: str) -> int:
    package = name.partition(".")[0] + ".*"
    for level, (_, members) in enumerate(LAYERS):
        if name in members.split() or package in members.split():
            return level
    raise AssertionError(f"harness/{name}: not in LAYERS; say where it belongs")


def test_every_module_has_its_layer_and_every_name_in_the_table_exists() -> None:
    known = modules()
    for name in known:
        layer(name)
    listed = [m for _, members in LAYERS for m in members.split() if not m.endswith(".*")]
    assert [name for name in listed if name not in known] == []


def test_imports_go_downwards_only() -> None:
    upwards = [
        f"{name} ({LAYERS[layer(name)][0]}) imports {target} ({LAYERS[layer(target)][0]})"
        for name, targets in graph().items()
        for target in targets
        if layer(target) > layer(name)
    ]
    assert upwards == []


def test_no_two_modules_need_each_other() -> None:
    graphlib.TopologicalSorter(graph()).prepare()


@pytest.mark.parametrize("library", OWNERS)
def test_a_library_is_imported_by_its_owners_only(library: str) -> None:
    strangers = [
        name
        for name, path in modules().items()
        if any(target.split(".")[0] == library for target in imports(path))
        and not {name, LAYERS[layer(name)][0]} & OWNERS[library]
    ]
    assert strangers == []


def test_nothing_of_the_judges_is_within_the_workers_reach() -> None:
    found, todo = set[str](), ["worker"]
    needed = graph()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += needed[name]
    assert found - WORKER_SIDE - {"__init__"} == set()


def test_the_detector_sees_an_import_inside_of_a_function(tmp_path: Path) -> None:
    file = tmp_path / "lazy.py"
    file.write_text(
        "if TYPE_CHECKING:\n    import yaml\n"
        "def f():\n    from harness.store import open_store\n    import torch.nn\n"
    )
    assert set(imports(file)) == {"harness.store.open_store", "torch.nn"}


def loaded(*arguments: str) -> set[str]:
    """The heavy libraries that a command line loads, in a process of its own."""
    code = (
        "import sys\nfrom harness.cli import run\n"
        "code = run(sys.argv[1:])\nassert code == 0, code\n"
        "heavy = {'torch', 'numpy', 'scipy', 'plotly', 'jinja2', 'yaml', 'sqlalchemy', 'rich'}\n"
        "print('LOADED', *(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


@pytest.fixture
def stored(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/some.db"
    # Five processes: an interval that rests on how they differ, and so on Student's quantile.
    estimates = [timing.Estimate(p, (1e4 + p, 1e4 - p, 1e4)) for p in range(5)]
    blocks = [Block(e.process, 1, (1, 1, 1), (1, 1, 1)) for e in estimates]
    cases = tuple(
        make_case(shape, timing.summarise(estimates, blocks, stop=Stop.PRECISION))
        for shape in SHAPES
    )
    with open_store(url, create=True) as store:
        store.add(dataclasses.replace(make_run(id="abc123"), cases=cases))
    return url


def test_help_loads_nothing_heavy() -> None:
    assert loaded("--help") == set()


def test_the_leaderboard_loads_neither_torch_nor_scipy(stored: str) -> None:
    assert loaded("leaderboard", "--db", stored) <= {"yaml", "sqlalchemy", "rich"}
    assert loaded("leaderboard", "--json", "--db", stored) <= {"yaml", "sqlalchemy", "rich"}


def test_show_loads_neither_torch_nor_scipy(stored: str) -> None:
    assert loaded("show", "abc123", "--db", stored) <= {"yaml", "sqlalchemy", "rich"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_loads_no_torch(command: str) -> None:
    assert not loaded(command, "--help") & {"torch", "scipy", "plotly"}
