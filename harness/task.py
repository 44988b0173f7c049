"""A folder with task/, reference/ and shapes.yaml -> Task, and its functions -> TaskModules.

`load` reads and checks without torch; `load_modules` imports the task's code (one task a process).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import keyword
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from harness import strict_yaml
from harness.errors import TaskError, UsageError
from harness.model import Case, CaseKind, Limits, Shape, Task, Tolerance
from harness.strict_yaml import Value

FILE = "shapes.yaml"

#: Sizes beyond this are a slip of the keyboard: no tensor of two such axes fits any machine.
MAX_SIZE = 2**31 - 1

#: Seeds travel as signed 64-bit integers.
MAX_SEED = 2**63 - 1

#: Keys of `limits`: the field of Limits, and how many of its units one of the key's makes.
LIMITS = {
    "import_s": ("import_ns", 10**9),
    "call_s": ("call_ns", 10**9),
    "run_s": ("run_ns", 10**9),
    "memory_gib": ("memory_bytes", 1 << 30),
    "file_gib": ("file_bytes", 1 << 30),
    "log_kib": ("log_bytes", 1 << 10),
    "processes": ("processes", 1),
    "open_files": ("open_files", 1),
}

#: Of a second or a GiB; less is a slip of the pen.
_LEAST = 0.001

_REQUIRED = ("name", "axes", "tolerance", "inputs", "tests", "ranked")
_KEYS = (*_REQUIRED, "multiple_of", "hard", "timed_inputs", "ranked_seed", "limits")
#: No axis: keys of a row, and what generate_input is given beside the sizes.
_TAKEN = ("seed", "inputs", "light_speed_us", "device")


def find_root(problem: Path | None, start: Path, submission: Path | None) -> Path:
    """The folder of shapes.yaml: `problem`, else upward from `start`, else from the submission."""
    if problem is not None:
        if not (problem / FILE).is_file():
            raise TaskError(f"{problem}: there is no {FILE}. Give the folder that holds it")
        return problem.resolve()
    places = [start, *([submission.parent] if submission is not None else [])]
    for place in places:
        here = place.resolve()
        for folder in (here, *here.parents):
            if (folder / FILE).is_file():
                return folder
    tried = " or ".join(dict.fromkeys(str(place.resolve()) for place in places))
    raise TaskError(f"no {FILE} in {tried} or above. Change to a task's folder or give --problem")


def load(root: Path) -> Task:
    """Read and check a task.  Imports neither torch nor the task's code; raises TaskError."""
    for name in ("task", "reference"):
        if not (root / name / "__init__.py").is_file():
            remedy = "A task is a folder with task/, reference/ and shapes.yaml"
            raise TaskError(f"{root / name}: there is no __init__.py. {remedy}")
    document = strict_yaml.read(root / FILE)
    fields = document.mapping(_KEYS, _REQUIRED)
    axes = _axes(fields["axes"])
    multiples = _multiples(fields.get("multiple_of"), axes)
    rows = _Rows(axes, dict(multiples))
    inputs = _names(fields["inputs"])
    seed = fields.get("ranked_seed")
    return Task(
        name=fields["name"].text(),
        root=str(root),
        digest=digest(root),
        axes=axes,
        tests=tuple(rows.case(row, inputs[0]) for row in fields["tests"].items()),
        hard=_hard(fields.get("hard"), rows, inputs),
        ranked=_ranked(fields["ranked"], rows),
        ranked_seed=seed.integer(low=0, high=MAX_SEED) if seed is not None else 0,
        tolerance=_tolerance(fields["tolerance"]),
        limits=_limits(fields.get("limits")),
        inputs=inputs,
        multiple_of=multiples,
        timed_inputs=_timed_inputs(fields.get("timed_inputs"), inputs),
    )


def digest(root: Path) -> str:
    """sha256 over names and contents of task/, reference/ and shapes.yaml, caches left out."""
    total = hashlib.sha256()
    try:
        named = {path.relative_to(root).as_posix(): path for path in parts(root) if path.is_file()}
        for name in sorted(named):
            content = named[name].read_bytes()
            total.update(f"{name}\0{len(content)}\0".encode())
            total.update(content)
    except OSError as error:
        raise TaskError(f"{error.filename}: cannot be read: {error.strerror}. Check it") from None
    return total.hexdigest()


def parts(root: Path) -> Iterator[Path]:
    """What the digest covers: shapes.yaml and all below task/ and reference/.  Raises OSError.

    Folders and dangling links are among it, since either may become or hold a file.
    """
    yield root / FILE
    around = frozenset(_identity(folder) for folder in (root.resolve(), *root.resolve().parents))
    for name in ("task", "reference"):
        yield root / name
        yield from _below(root / name, around)


def _below(folder: Path, around: frozenset[tuple[int, int]]) -> Iterator[Path]:
    """Everything below a folder but caches, through links as an import would go.

    A link to a folder `around` it leads back to where it came from, and is not followed.
    """
    around |= {_identity(folder)}
    for path in folder.iterdir():
        if path.name != "__pycache__":
            yield path
            if path.is_dir() and _identity(path) not in around:
                yield from _below(path, around)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def parse_shapes(texts: Sequence[str], task: Task) -> tuple[Shape, ...]:
    """Each as `parse_shape` reads it, one given twice once."""
    return tuple(dict.fromkeys(parse_shape(text, task) for text in texts))


def parse_shape(text: str, task: Task) -> Shape:
    """`m=128,k=256,l=1`, or as tables show it `128x256x1`, as a shape of this task.

    With its published bound when shapes.yaml lists it.
    """
    example = ",".join(f"{axis}=.." for axis in task.axes)
    plain = text.strip().lower().split("x")
    if len(plain) == len(task.axes) and all(n.isascii() and n.isdecimal() for n in plain):
        text = ",".join(f"{axis}={n}" for axis, n in zip(task.axes, plain, strict=True))
    sizes: dict[str, int] = {}
    for part in text.split(","):
        axis, _, digits = (piece.strip() for piece in part.partition("="))
        known = axis in task.axes and axis not in sizes
        if axis and digits and axis not in task.axes:
            raise UsageError(
                f"--shape {text}: there is no axis {axis!r}. The axes are {', '.join(task.axes)}: "
                f"write --shape {example}"
            )
        if not known or not (digits.isascii() and digits.isdecimal()):
            sizes_alone = "x".join(task.axes).upper()
            raise UsageError(
                f"--shape {text}: cannot read {part!r}. Write --shape {example}, or {sizes_alone}"
            )
        sizes[axis] = int(digits.lstrip("0")[:20] or "0")
    missing = [axis for axis in task.axes if axis not in sizes]
    if missing:
        raise UsageError(f"--shape {text}: no {missing[0]}. Write --shape {example}")
    multiples = dict(task.multiple_of)
    for axis, size in sizes.items():
        step = multiples.get(axis, 1)
        if not 1 <= size <= MAX_SIZE or size % step:
            raise UsageError(f"--shape {text}: {axis} must be a positive multiple of {step}")
    shape = Shape(tuple((axis, sizes[axis]) for axis in task.axes))
    return next((ranked for ranked in task.ranked if ranked == shape), shape)


@dataclass(frozen=True, slots=True)
class _Rows:
    """How this task's rows of sizes are read."""

    axes: tuple[str, ...]
    multiples: dict[str, int]

    def sizes(self, fields: dict[str, Value]) -> tuple[tuple[str, int], ...]:
        sizes = []
        for axis in self.axes:
            size = fields[axis].integer(low=1, high=MAX_SIZE)
            step = self.multiples.get(axis, 1)
            if size % step:
                remedy = f"This task needs a multiple of {step}"
                raise fields[axis].error(f"{axis} is {size}", remedy)
            sizes.append((axis, size))
        return tuple(sizes)

    def case(self, row: Value, inputs: str) -> Case:
        fields = row.mapping((*self.axes, "seed"), (*self.axes, "seed"))
        seed = fields["seed"].integer(low=0, high=MAX_SEED)
        return Case(CaseKind.TEST, Shape(self.sizes(fields)), inputs, seed)


def _axes(value: Value) -> tuple[str, ...]:
    axes = _names(value)
    for item, axis in zip(value.items(), axes, strict=True):
        if axis in _TAKEN:
            raise item.error(f"{axis!r} cannot name an axis, it has a meaning", "Use another name")
        if not axis.isidentifier() or keyword.iskeyword(axis):
            raise item.error(f"{axis!r} cannot name an axis", "Use a name that Python allows")
    return axes


def _names(value: Value) -> tuple[str, ...]:
    names: list[str] = []
    for item in value.items():
        name = item.text()
        if name in names:
            raise item.error(f"{name!r} is listed twice in {value.name}", "Keep one")
        names.append(name)
    return tuple(names)


def _multiples(value: Value | None, axes: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    found = value.mapping(axes) if value is not None else {}
    return tuple((axis, item.integer(low=1, high=MAX_SIZE)) for axis, item in found.items())


def _timed_inputs(value: Value | None, inputs: tuple[str, ...]) -> str:
    """The family of timed calls, the first where none is named or there is no other."""
    if value is None or not inputs[1:]:
        return inputs[0]
    if (name := value.text()) not in inputs:
        raise value.error(f"{name!r} is not among the `inputs`", strict_yaml.suggest(name, inputs))
    return name


def _hard(value: Value | None, rows: _Rows, inputs: tuple[str, ...]) -> tuple[Case, ...]:
    """One case for each row and family but the first; a row may name the families it takes.

    With no family but the first there is nothing to do, whatever the rows say: that is how
    `inputs: [competition]` asks for the contest's rule.
    """
    cases: list[Case] = []
    for row in value.items() if value is not None else []:
        keys = (*rows.axes, "seed")
        fields = row.mapping((*keys, "inputs"), keys)
        shape = Shape(rows.sizes(fields))
        seed = fields["seed"].integer(low=0, high=MAX_SEED)
        chosen = inputs[1:]
        if inputs[1:] and (listed := fields.get("inputs")) is not None:
            chosen = _names(listed)
            for name in [name for name in chosen if name not in inputs[1:]]:
                remedy = strict_yaml.suggest(name, inputs[1:])
                raise listed.error(f"{name!r} is not among the hard `inputs`", remedy)
        cases += [Case(CaseKind.TEST, shape, name, seed) for name in chosen]
    return tuple(cases)


def _ranked(value: Value, rows: _Rows) -> tuple[Shape, ...]:
    shapes: list[Shape] = []
    for row in value.items():
        fields = row.mapping((*rows.axes, "light_speed_us"), rows.axes)
        bound = fields.get("light_speed_us")
        bound_ns = None
        if bound is not None:
            bound_us = bound.number(positive=True)
            if bound_us > MAX_SIZE:
                raise bound.error(f"{bound_us:g} us is no time of a kernel", "Write microseconds")
            bound_ns = round(bound_us * 1000)
        shape = Shape(rows.sizes(fields), bound_ns)
        if shape in shapes:
            raise row.error(f"the ranked shape {shape.label} is listed twice", "Keep one")
        shapes.append(shape)
    return tuple(shapes)


def _tolerance(value: Value) -> Tolerance:
    fields = value.mapping(("rtol", "atol"), ("rtol", "atol"))
    return Tolerance(
        rtol=fields["rtol"].number(positive=False), atol=fields["atol"].number(positive=False)
    )


def _limits(value: Value | None) -> Limits:
    found = value.mapping(LIMITS) if value is not None else {}
    chosen: dict[str, int] = {}
    for key, item in found.items():
        field, unit = LIMITS[key]
        # whole counts for what is counted, parts of a second or a GiB for what is measured
        amount = item.integer(low=1, high=MAX_SIZE) if unit == 1 else item.number(positive=True)
        if amount < _LEAST:
            raise item.error(
                f"{amount:g} is too little for any submission", f"Give {_LEAST:g} or more"
            )
        chosen[field] = max(1, round(min(amount * unit, float(MAX_SEED // 2))))
    return Limits(**chosen)


@dataclass(frozen=True, slots=True)
class TaskModules:
    """The task's functions.  Only the first two are there in every task."""

    generate_input: Callable[..., Any]  # (*sizes, seed, inputs, device): all by name
    ref_kernel: Callable[[Any], Any]
    exact: Callable[[Any], Any] | None = None  # data -> expected, terms, exact
    diagnose: Callable[[Any, Any], str] | None = None  # (data, wrong output) -> a hint or ""
    compulsory_bytes: Callable[..., int] | None = None  # (*sizes), by name
    strict_slack: Callable[[str], float] | None = None
    supports_scaled_mm: Callable[[Any], bool] | None = None
    writable: tuple[int, ...] = ()  # positions of `data` that a submission may write


def load_modules(root: Path) -> TaskModules:
    """Import task and reference of this folder under these names, replacing another task's.

    Raises TaskError when they cannot be imported or lack generate_input or ref_kernel.
    """
    for name in [n for n in sys.modules if n.partition(".")[0] in ("task", "reference")]:
        del sys.modules[name]
    with _without_bytecode():
        task = _import("task", root)
        reference = _import("reference", root)
    optional = ("exact", "diagnose", "compulsory_bytes", "strict_slack", "supports_scaled_mm")
    return TaskModules(
        generate_input=_with_options(_function(task, "generate_input")),
        ref_kernel=_function(reference, "ref_kernel"),
        writable=_writable(reference),
        **{name: _function(reference, name) for name in optional if hasattr(reference, name)},
    )


@contextlib.contextmanager
def _without_bytecode() -> Iterator[None]:
    """Import from sources alone: what lies in a task's __pycache__ is no part of its digest."""
    before = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = os.devnull, True
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


def _import(name: str, root: Path) -> ModuleType:
    path = root / name / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)]
    )
    if spec is None or spec.loader is None:
        raise TaskError(f"{path}: cannot be imported. Check that it is a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever an organiser's file may raise
        sys.modules.pop(name, None)
        what = f"{path}: importing it raised {type(error).__name__}: {error}"
        raise TaskError(f"{what}. Correct the task, or install what it needs") from error
    return module


def _function(module: ModuleType, name: str) -> Callable[..., Any]:
    found = getattr(module, name, None)
    if not callable(found):
        raise TaskError(f"{module.__file__}: there is no function {name}. Define it")
    return found  # type: ignore[no-any-return]


def _writable(reference: ModuleType) -> tuple[int, ...]:
    found = getattr(reference, "WRITABLE", ())
    if not isinstance(found, tuple) or not all(type(item) is int for item in found):
        raise TaskError(f"{reference.__file__}: WRITABLE is not a tuple of positions. Write (6,)")
    return found


def _with_options(generate: Callable[..., Any]) -> Callable[..., Any]:
    """A generator that may be given `inputs` and `device`, whether or not it knows them."""
    taken = inspect.signature(generate).parameters
    if any(taken[name].kind is inspect.Parameter.VAR_KEYWORD for name in taken):
        return generate
    unknown = [name for name in ("inputs", "device") if name not in taken]

    def call(**arguments: Any) -> Any:
        return generate(**{n: v for n, v in arguments.items() if n not in unknown})

    return call if unknown else generate
