"""shapes.yaml is read as written or refused with file, line and remedy; task code is imported."""

from __future__ import annotations

import importlib.util
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import task as tasks
from harness.errors import TaskError, UsageError
from harness.model import Case, CaseKind, Limits, Shape

ROOT = Path(__file__).parents[1]
DOUBLE = ROOT / "tests" / "problems" / "double"

GOOD = """\
name: sample
axes: [m, n]
multiple_of: {m: 4}
tolerance: {rtol: 1.0e-3, atol: 0.5}
inputs: [easy, mean, nasty]
tests:
  - {m: 4, n: 3, seed: 1}
hard:
  - {m: 8, n: 1, seed: 2}
  - {m: 12, n: 1, seed: 3, inputs: [nasty]}
ranked_seed: 7
ranked:
  - {m: 8, n: 2, light_speed_us: 8.622}
  - {m: 4, n: 2}
limits: {import_s: 2.5, processes: 3}
"""


@pytest.fixture
def modules() -> Iterator[None]:
    """Leave the names task and reference as they were: other tests import the project's own."""
    names = [n for n in sys.modules if n.partition(".")[0] in ("task", "reference")]
    saved = {name: sys.modules[name] for name in names}
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] in ("task", "reference")]:
        del sys.modules[name]
    sys.modules.update(saved)


def tree(root: Path, text: str | bytes = GOOD) -> Path:
    for name in ("task", "reference"):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "__init__.py").touch()
    raw = text if isinstance(text, bytes) else text.encode()
    (root / "shapes.yaml").write_bytes(raw)
    return root


def refusal(root: Path, text: str | bytes) -> str:
    with pytest.raises(TaskError) as caught:
        tasks.load(tree(root, text))
    message = str(caught.value)
    assert message.startswith(f"{root / 'shapes.yaml'}:") and "\n" not in message
    return message.removeprefix(f"{root / 'shapes.yaml'}:")


def test_a_good_file_is_read_as_written(tmp_path: Path) -> None:
    task = tasks.load(tree(tmp_path))
    assert (task.name, task.axes, task.inputs) == ("sample", ("m", "n"), ("easy", "mean", "nasty"))
    assert (task.tolerance.rtol, task.tolerance.atol) == (1e-3, 0.5)
    assert task.tests == (Case(CaseKind.TEST, Shape((("m", 4), ("n", 3))), "easy", 1),)
    hard = [(c.shape.label, c.inputs, c.seed) for c in task.hard]
    assert hard == [("8x1", "mean", 2), ("8x1", "nasty", 2), ("12x1", "nasty", 3)]
    assert [shape.light_speed_ns for shape in task.ranked] == [8622, None]
    assert task.limits == Limits(import_ns=2_500_000_000, processes=3)
    assert task.ranked_seed == 7 and task.multiple_of == (("m", 4),)


def test_our_own_task_is_the_contests() -> None:
    task = tasks.load(ROOT)
    assert len(task.tests) == 10 and {c.seed for c in task.tests} == {1111}
    assert [s.label for s in task.ranked] == ["7168x16384x1", "4096x7168x8", "7168x2048x4"]
    assert [s.light_speed_ns for s in task.ranked] == [8622, 17275, 4317]
    assert (task.tolerance.rtol, task.tolerance.atol) == (1e-3, 1e-3)
    assert {c.inputs for c in task.hard} == set(task.inputs[1:])
    assert set(task.ranked) <= {c.shape for c in task.hard}


def test_only_the_first_family_means_no_hard_cases(tmp_path: Path) -> None:
    text = GOOD.replace("[easy, mean, nasty]", "[easy]")
    assert tasks.load(tree(tmp_path, text)).hard == ()


BAD = [
    ("rtol: 1.0e-3", "rtol: 1e-3", "4: rtol is text ('1e-3'). Write 1.0e-3"),
    ("rtol: 1.0e-3", "rtol: 1E-2", "4: rtol is text ('1E-2'). Write 1.0e-2"),
    ("rtol: 1.0e-3", "rtol: 1e2", "4: rtol is text ('1e2'). Write 1.0e+2"),
    ("rtol: 1.0e-3", 'rtol: "0.01"', "4: rtol is text ('0.01'). Write 0.01 without quotes"),
    ("rtol: 1.0e-3", "rtol: .inf", "4: rtol is .inf. Write a finite number"),
    ("rtol: 1.0e-3", "rtol: .nan", "4: rtol is .nan. Write a finite number"),
    ("rtol: 1.0e-3", "rtol: -1", "4: rtol is -1. Write a finite number, zero or more"),
    ("rtol: 1.0e-3", "rtol: null", "4: rtol is empty"),
    ("rtol: 1.0e-3", "rtol: [1]", "4: rtol is a list"),
    ("rtol: 1.0e-3", "rtol: true", "4: rtol is true or false"),
    ("rtol: 1.0e-3, ", "", "4: tolerance has no 'rtol'"),
    (
        "tolerance:",
        "tolerence:",
        "4: unknown key 'tolerence' in the file. Did you mean 'tolerance'?",
    ),
    ("ranked_seed: 7", "name: again", "11: 'name' is given twice, first in line 1"),
    ("n: 3, seed: 1", "n: 3, n: 4, seed: 1", "7: 'n' is given twice, first in line 7"),
    (
        "n: 3, seed: 1",
        "n: 3, sed: 1",
        "7: unknown key 'sed' in an entry of tests. Did you mean 'seed'",
    ),
    ("n: 3, seed: 1", "n: 3", "7: an entry of tests has no 'seed'"),
    ("n: 3, seed: 1", "n: true, seed: 1", "7: n is true or false"),
    ("n: 3, seed: 1", "n: 3.0, seed: 1", "7: n is a number ('3.0'). Write a whole number"),
    ("n: 3, seed: 1", 'n: "3", seed: 1', "7: n is text ('3'). Write 3 without quotes"),
    ("n: 3, seed: 1", "n: 010, seed: 1", "7: n is 010, not a plain whole number"),
    ("n: 3, seed: 1", "n: 1:30, seed: 1", "7: n is 1:30, not a plain whole number"),
    ("n: 3, seed: 1", "n: 0x10, seed: 1", "7: n is 0x10, not a plain whole number"),
    ("n: 3, seed: 1", "n: 0, seed: 1", "7: n is 0. It must be from 1"),
    ("n: 3, seed: 1", "n: -3, seed: 1", "7: n is -3. It must be from 1"),
    ("n: 3, seed: 1", "n: 99999999999, seed: 1", "7: n is 99999999999. It must be from 1 to"),
    ("n: 3, seed: 1", f"n: {'9' * 5000}, seed: 1", "7: n is 999"),
    ("n: 3, seed: 1", "n: 3, seed: null", "7: seed is empty"),
    ("{m: 4, n: 3", "{m: 5, n: 3", "7: m is 5. This task needs a multiple of 4"),
    ("{m: 4, n: 2}", "{m: 6, n: 2}", "14: m is 6. This task needs a multiple of 4"),
    ("{m: 4, n: 2}", "{m: 8, n: 2}", "14: the ranked shape 8x2 is listed twice"),
    ("8.622", "0", "13: light_speed_us is 0. Write a finite number, above zero"),
    ("8.622", "1:30.5", "13: light_speed_us is 1:30.5. Write a finite number"),
    (
        "inputs: [nasty]",
        "inputs: [nasy]",
        "10: 'nasy' is not among the hard `inputs`. Did you mean",
    ),
    ("[easy, mean, nasty]", "[easy, mean, easy]", "5: 'easy' is listed twice in inputs"),
    ("[easy, mean, nasty]", "[]", "5: inputs is an empty list"),
    ("[easy, mean, nasty]", "[1, 2]", "5: an entry of inputs is a whole number"),
    ("[easy, mean, nasty]", "easy", "5: inputs is text ('easy'). Write a list"),
    ("name: sample", "name: sample\ntimed_inputs: nasy", "2: 'nasy' is not among the `inputs`"),
    *(
        ("axes: [m, n]", f"axes: [m, {name}]", f"2: '{name}' cannot name an axis, it has a meaning")
        for name in ("seed", "inputs", "light_speed_us", "device")
    ),
    ("axes: [m, n]", "axes: [m, lambda]", "2: 'lambda' cannot name an axis. Use a name that"),
    ("axes: [m, n]", "axes: [m, a-b]", "2: 'a-b' cannot name an axis. Use a name that"),
    ("axes: [m, n]", "axes: [m, n, k]", "7: an entry of tests has no 'k'"),
    ("multiple_of: {m: 4}", "multiple_of: {k: 4}", "3: unknown key 'k' in multiple_of"),
    ("name: sample", "name: ../x", "1: name '../x' is not a name"),
    ("name: sample", "name: [", "3: not YAML"),
    ("name: sample", "<<: {a: 1}", "1: unknown key '<<'"),
    ("name: sample", "? [a]\n: 1", "1: unknown key"),
    ("name: sample", "name: !!python/name:os.system x", "1: name is of the type os.system"),
    ("{import_s: 2.5, processes: 3}", "{import_s: 0}", "15: import_s is 0"),
    ("{import_s: 2.5, processes: 3}", "{processes: 1.5}", "15: processes is a number"),
    ("{import_s: 2.5, processes: 3}", "{memory: 3}", "15: unknown key 'memory' in limits"),
    ("{import_s: 2.5, processes: 3}", "", "15: limits is empty"),
    ("import_s: 2.5", "run_s: 1.0e-300", "15: 1e-300 is too little for any submission"),
]


def test_timed_calls_get_the_first_family_or_the_one_that_is_named(tmp_path: Path) -> None:
    assert tasks.load(tree(tmp_path)).timed_inputs == "easy"
    named = GOOD.replace("name: sample", "name: sample\ntimed_inputs: mean")
    assert tasks.load(tree(tmp_path, named)).timed_inputs == "mean"
    alone = named.replace("[easy, mean, nasty]", "[easy]")  # the contest's rule, by one line
    assert tasks.load(tree(tmp_path, alone)).timed_inputs == "easy"


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[b[1][:30] for b in BAD])
def test_what_cannot_be_meant_is_refused_with_line_and_remedy(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert GOOD.count(old) == 1
    assert refusal(tmp_path, GOOD.replace(old, new)).startswith(message)


def test_a_section_given_twice_is_refused(tmp_path: Path) -> None:
    text = GOOD + "tests:\n  - {m: 4, n: 1, seed: 1}\n"
    assert refusal(tmp_path, text).startswith("16: 'tests' is given twice, first in line 7")


@pytest.mark.parametrize("gone", ["name", "axes", "tolerance", "inputs", "tests", "ranked"])
def test_a_missing_section_is_named(gone: str, tmp_path: Path) -> None:
    kept, skip = [], False
    for line in GOOD.splitlines(keepends=True):
        skip = line.startswith(f"{gone}:") or (skip and line.startswith(" "))
        kept += [] if skip else [line]
    assert f"has no {gone!r}" in refusal(tmp_path, "".join(kept))


BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "1: the file is empty"),
        (b"# nothing\n", "1: the file is empty"),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "1: not UTF-8"),
        (b"name: a\n\xff\n", "2: not UTF-8"),
        (b"name: a\nb: \x00\n", "1: not YAML"),
        (b"name: a\n---\nname: b\n", "2: not YAML"),
        (b"- 1\n- 2\n", "1: the file is a list"),
        (b"just words\n", "1: the file is text"),
        (b"name: a\n\taxes: [b]\n", "2: not YAML"),
        (BOMB.encode(), "2: `*a` is an alias"),
        (b"[" * 100_000, "1: nested too deeply"),
        (b"#" * (2 << 20), "1: larger than"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_what_is_no_shapes_file_is_refused(text: bytes, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, text).startswith(message)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "shapes.yaml").unlink()
    (tmp_path / "shapes.yaml").mkdir()
    with pytest.raises(TaskError, match="cannot be read"):
        tasks.load(tmp_path)


def test_a_folder_without_task_code_is_refused(tmp_path: Path) -> None:
    shutil.rmtree(tree(tmp_path) / "reference")
    with pytest.raises(TaskError, match="reference: there is no __init__.py"):
        tasks.load(tmp_path)


def test_the_root_is_the_given_folder_or_above_the_current_or_the_submission(
    tmp_path: Path,
) -> None:
    here, there = tree(tmp_path / "here"), tree(tmp_path / "there")
    deep = here / "a" / "b"
    deep.mkdir(parents=True)
    assert tasks.find_root(there, here, None) == there
    assert tasks.find_root(None, deep, there / "x.py") == here
    assert tasks.find_root(None, tmp_path, there / "submissions" / "x.py") == there
    with pytest.raises(TaskError, match="no shapes.yaml in .* or above.*--problem"):
        tasks.find_root(None, tmp_path, None)
    with pytest.raises(TaskError, match="there is no shapes.yaml"):
        tasks.find_root(tmp_path, here, None)


def test_the_digest_follows_names_and_contents_but_no_cache(tmp_path: Path) -> None:
    first = tasks.digest(tree(tmp_path))
    (tmp_path / "task" / "__pycache__").mkdir()
    (tmp_path / "task" / "__pycache__" / "x.pyc").write_bytes(b"1")
    (tmp_path / "notes.txt").write_text("elsewhere")
    assert tasks.digest(tmp_path) == first
    seen = {first}
    (tmp_path / "reference" / "more.py").write_text("a")
    seen.add(tasks.digest(tmp_path))
    (tmp_path / "reference" / "more.py").rename(tmp_path / "reference" / "less.py")
    seen.add(tasks.digest(tmp_path))
    (tmp_path / "reference" / "less.py").write_text("b")
    seen.add(tasks.digest(tmp_path))
    (tmp_path / "shapes.yaml").write_text(GOOD + "\n")
    seen.add(tasks.digest(tmp_path))
    assert len(seen) == 5


def test_the_digest_of_a_task_without_links_is_what_it_was(tmp_path: Path) -> None:
    # Runs are kept under it: as the versions before this test computed it.
    assert tasks.digest(tree(tmp_path)) == (
        "ca4de3658e1b2497dd3ee5e87a5a088882de74dab7dc21d0b892e09716b98313"
    )


def test_the_digest_covers_what_lies_behind_links_and_ends_in_their_loops(tmp_path: Path) -> None:
    lib, root = tmp_path / "lib", tree(tmp_path / "root")
    (lib / "deep").mkdir(parents=True)
    for name in ("table.py", "deep/inner.py", "deep/other.py"):
        (lib / name).write_text("1")
    seen = {tasks.digest(root)}
    (root / "task" / "lib").symlink_to(lib)
    (root / "reference" / "lib").symlink_to(lib)
    for step in (
        lambda: (lib / "table.py").write_text("2"),
        lambda: (lib / "deep" / "inner.py").write_text("2"),
        lambda: (lib / "deep" / "other.py").unlink(),
        lambda: (root / "reference" / "lib").unlink(),
    ):
        seen.add(tasks.digest(root))
        step()
    seen.add(tasks.digest(root))
    assert len(seen) == 6
    for loop, to in (("up", ".."), ("self", "."), ("top", "/"), ("root", str(root))):
        (root / "task" / loop).symlink_to(to)
    (lib / "deep" / "back").symlink_to(lib)
    (lib / "ring").symlink_to("ring")
    assert tasks.digest(root) in seen


def test_a_shape_on_the_command_line_is_read_in_any_order(tmp_path: Path) -> None:
    task = tasks.load(tree(tmp_path))
    assert tasks.parse_shape("n=5, m=8", task).axes == (("m", 8), ("n", 5))
    assert tasks.parse_shape("m=8,n=2", task).light_speed_ns == 8622
    assert tasks.parse_shape(f"m=8,n={'0' * 30}12", task).axes == (("m", 8), ("n", 12))
    assert tasks.parse_shape("8x2", task) == tasks.parse_shape("m=8,n=2", task)


@pytest.mark.parametrize(
    "text",
    ["", "m=8", "m=8,n=2,n=2", "m=8,k=2", "m=8,n=0", "m=8,n=-1", "m=8,n=2.0", "m=9,n=2", "8x2x1"]
    + ["8x", "9x2", "8x²", "m=8,n=²", f"m=8,n={'9' * 5000}", "m=8,n=2,", "m=8;n=2"],
    ids=lambda text: text[:12],
)
def test_a_shape_that_cannot_be_is_a_usage_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--shape"):
        tasks.parse_shape(text, tasks.load(tree(tmp_path)))


def test_an_axis_that_is_none_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no axis 'k'. The axes are m, n: write --shape"):
        tasks.parse_shape("k=8,n=2", tasks.load(tree(tmp_path)))


def test_loading_a_task_imports_no_torch() -> None:
    code = (
        "import sys; from pathlib import Path; from harness import task;"
        f"task.load(Path({str(ROOT)!r})); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_the_code_of_a_task_is_imported_under_its_own_names(modules: None) -> None:
    own, double = tasks.load_modules(ROOT), tasks.load_modules(DOUBLE)
    assert Path(str(sys.modules["task"].__file__)).parent == DOUBLE / "task"
    (x,) = double.generate_input(n=5, seed=1, inputs="signed", device="cpu")
    assert double.ref_kernel((x,)).tolist() == (2 * x).tolist()
    assert double.exact is None and double.writable == ()
    assert own.exact is not None and own.diagnose is not None and own.writable == (6,)
    data = own.generate_input(m=128, k=64, l=1, seed=1, inputs="normal", device="cpu")
    assert own.exact(data).expected.shape == (128, 1, 1)


def test_a_tasks_bytecode_is_neither_believed_nor_written(tmp_path: Path, modules: None) -> None:
    root = shutil.copytree(ROOT / "tests/problems/double", tmp_path / "double")
    shutil.rmtree(root / "reference/__pycache__", ignore_errors=True)
    source = root / "reference/__init__.py"
    evil = tmp_path / "evil.py"
    evil.write_text(source.read_text() + "\n\ndef compulsory_bytes(**axes):\n    return 1\n")
    planted = Path(importlib.util.cache_from_source(str(source)))
    py_compile.compile(
        str(evil), str(planted), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    found = tasks.load_modules(root)
    assert found.compulsory_bytes is None or found.compulsory_bytes(n=1000) != 1
    assert [path.name for path in root.rglob("__pycache__")] == ["__pycache__"]
    assert [path.parent.parent.name for path in root.rglob("*.pyc")] == ["reference"]


def test_a_generator_without_families_or_device_is_given_neither(
    tmp_path: Path, modules: None
) -> None:
    tree(tmp_path)
    (tmp_path / "task" / "__init__.py").write_text("def generate_input(m, seed): return m + seed\n")
    (tmp_path / "reference" / "__init__.py").write_text("def ref_kernel(data): return data\n")
    found = tasks.load_modules(tmp_path)
    assert found.generate_input(m=1, seed=2, inputs="competition", device="cpu") == 3


@pytest.mark.parametrize(
    ("task_code", "reference_code", "message"),
    [
        ("", "def ref_kernel(data): ...", "task.*there is no function generate_input"),
        ("def generate_input(): ...", "", "reference.*there is no function ref_kernel"),
        ("def generate_input(: ...", "", "task.*raised SyntaxError"),
        ("import no_such_module_here", "", "task.*raised ModuleNotFoundError.*install"),
        ("raise SystemExit(0)", "", "task.*raised SystemExit"),
        ("def generate_input(): ...", "1 / 0", "reference.*raised ZeroDivisionError"),
        (
            "def generate_input(): ...",
            "WRITABLE = [6]\ndef ref_kernel(data): ...",
            "WRITABLE is not a tuple",
        ),
        (
            "def generate_input(): ...",
            "exact = 1\ndef ref_kernel(data): ...",
            "there is no function exact",
        ),
    ],
)
def test_broken_task_code_is_the_tasks_error(
    task_code: str, reference_code: str, message: str, tmp_path: Path, modules: None
) -> None:
    tree(tmp_path)
    (tmp_path / "task" / "__init__.py").write_text(task_code + "\n")
    (tmp_path / "reference" / "__init__.py").write_text(reference_code + "\n")
    with pytest.raises(TaskError, match=message):
        tasks.load_modules(tmp_path)
