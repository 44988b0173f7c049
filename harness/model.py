"""Every value that crosses a module boundary.  Imports neither torch nor anything of ours.

Units are in the names: `_ns` nanoseconds, `_bytes` bytes.  Absent is `None`, never a sentinel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class Verdict(StrEnum):
    """What became of a case, and the worst of them of a run."""

    PASSED = "passed"
    COMPILE_ERROR = "compile_error"
    IMPORT_ERROR = "import_error"
    WRONG_TYPE = "wrong_type"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    NONFINITE = "nonfinite"
    WRONG_ANSWER = "wrong_answer"
    UNORDERED = "unordered"
    INPUT_MODIFIED = "input_modified"
    RUNTIME_ERROR = "runtime_error"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    TAMPERED = "tampered"
    IMPLAUSIBLE = "implausible"
    PROTOCOL_ERROR = "protocol_error"
    UNSUPPORTED = "unsupported"


class Doubt(StrEnum):
    """A reason to read a number with care; the renderer words it and names the remedy."""

    NOISY = "noisy"
    THROTTLED = "throttled"
    FEW_SAMPLES = "few samples"
    BUDGET = "budget"
    HOST_BOUND = "host bound"
    SYNCHRONISES = "synchronises"
    REDUCED_PRECISION = "reduced precision"
    EMULATED = "emulated"
    ROOT_WORKER = "root worker"
    SHARED_GPU = "shared gpu"
    SHARED_CPU = "shared cpu"
    HOST_EXCHANGE = "host exchange"
    NO_FLOOR = "no floor"
    UNSIGNED_IMPORT = "unsigned import"


#: A run with one of these is stored and shown, never ranked (see leaderboard.ineligible).
UNRANKED_DOUBTS = frozenset(
    {Doubt.EMULATED, Doubt.ROOT_WORKER, Doubt.SHARED_GPU, Doubt.HOST_EXCHANGE}
)


class Mode(StrEnum):
    TEST = "test"
    BENCHMARK = "benchmark"
    RANKED = "ranked"


class CaseKind(StrEnum):
    TEST = "test"
    BENCHMARK = "benchmark"


class Isolation(StrEnum):
    """How far the worker is kept from the host, strongest first; SECURITY.md has the promises."""

    SANDBOX = "sandbox"
    RESTRICTED = "restricted"
    SEPARATED = "separated"


class IsolationPolicy(StrEnum):
    """What the user asked for: the best there is, nothing below sandbox, or two plain processes."""

    AUTO = "auto"
    REQUIRE = "require"
    OFF = "off"


class Clock(StrEnum):
    """Whose clock the published times come from."""

    JUDGE = "judge"  # the judge's own events around the window, overhead calibrated
    WORKER = "worker"  # the worker's events, inside the interval that the judge's clock allows
    HOST = "host"  # the judge's monotonic clock around the call (CPU)


class ReferenceKind(StrEnum):
    SCALED_MM = "scaled_mm"
    EXACT = "exact"


class Stop(StrEnum):
    """Why sampling ended."""

    PRECISION = "precision"
    BUDGET = "budget"
    SAMPLES = "samples"  # the largest number of samples was reached


@dataclass(frozen=True, slots=True)
class Shape:
    """One row of shapes.yaml: named sizes, in the task's order, and its published bound."""

    axes: tuple[tuple[str, int], ...]
    light_speed_ns: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """For seeds, which it must not change; people are shown `label`."""
        return ", ".join(f"{name}={size}" for name, size in self.axes)

    @property
    def label(self) -> str:
        """The sizes alone, `7168x16384x1`, as people see a shape and --shape takes it."""
        return "x".join(str(size) for _, size in self.axes)


@dataclass(frozen=True, slots=True)
class Case:
    """A shape, an input family and a seed: one thing to check or to time."""

    kind: CaseKind
    shape: Shape
    inputs: str
    seed: int


@dataclass(frozen=True, slots=True)
class Tolerance:
    """|out - ref| <= atol + rtol * |ref|, in float64."""

    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What one submission may use; every breach is a verdict."""

    import_ns: int = 120_000_000_000  # import and compile, once per worker
    call_ns: int = 30_000_000_000  # one call; the first call of a shape may compile
    run_ns: int = 600_000_000_000  # everything
    memory_bytes: int = 16 << 30
    file_bytes: int = 4 << 30
    log_bytes: int = 1 << 16
    processes: int = 512
    open_files: int = 4096


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to sample and when to stop."""

    processes: int  # fresh worker processes at most, where there is time for them
    min_samples: int  # per process and shape
    max_samples: int  # per process and shape
    time_ns: int  # sampling time for all ranked shapes together
    precision: float = 0.005  # relative half-width of the 95% interval that ends sampling
    fewest: int = 1  # processes, however long they take


@dataclass(frozen=True, slots=True)
class Task:
    """A folder with task/, reference/ and shapes.yaml, read and checked."""

    name: str
    root: str
    digest: str  # sha256 over task/, reference/ and shapes.yaml
    axes: tuple[str, ...]
    tests: tuple[Case, ...]  # each row of `tests`, competition data
    hard: tuple[Case, ...]  # the hard families on a few shapes each
    ranked: tuple[Shape, ...]
    ranked_seed: int
    tolerance: Tolerance
    limits: Limits
    inputs: tuple[str, ...]
    multiple_of: tuple[tuple[str, int], ...] = ()  # what each size must be a multiple of
    timed_inputs: str = "competition"  # the one of `inputs` that timed calls get


@dataclass(frozen=True, slots=True)
class Submission:
    """One file, as it was read: what is judged is this text, whatever happens to the file."""

    name: str
    path: str
    sha256: str
    author: str
    source: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The machine that ran it; `facts` is everything else worth keeping, in order."""

    kind: str  # "cpu" or "cuda"
    name: str
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """Everything a judge needs to make one Run."""

    task_root: str
    submission: Submission
    device: str  # "cpu" or "cuda:N"
    mode: Mode
    shapes: tuple[Shape, ...] = ()  # replaces the shapes of the mode
    seed: int | None = None  # replaces the public seeds
    processes: int | None = None
    budget_ns: int | None = None
    timeout_ns: int | None = None
    isolation: IsolationPolicy = IsolationPolicy.AUTO
    observe: bool = False  # find out the classes of the calls: 4 s for a profiler to start
    replay_key: str | None = None  # a revealed secret seed: the same inputs again, never ranked


@dataclass(frozen=True, slots=True)
class Worst:
    """The element furthest outside the tolerance."""

    index: tuple[int, ...]
    expected: float
    got: float
    ulp: float


@dataclass(frozen=True, slots=True)
class Check:
    """A comparison of one output with the truth; the maxima are over finite elements."""

    elements: int
    mismatches: int
    max_abs: float
    max_rel: float
    max_ulp: float
    worst: Worst | None = None
    strict_mismatches: int = 0
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the device reported around a block of samples; None where it could not tell."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """The raw samples of one shape in one worker process, in the order they were taken."""

    process: int
    calls: int  # calls per window: 1; more in runs of before, beside single ones
    window_ns: tuple[int, ...]  # judge's estimate of the whole window, overhead removed
    claimed_ns: tuple[int, ...]  # the worker's own events for the same windows: testimony
    host_ns: tuple[int, ...] = ()  # host time of the call inside the worker: testimony
    before: Clocks | None = None
    after: Clocks | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one call on one shape.  Summary first, every raw sample in `blocks`."""

    median_ns: float
    low_ns: float
    high_ns: float
    mean_ns: float
    std_ns: float | None  # None from a single sample
    best_ns: float
    worst_ns: float
    samples: int
    processes: int
    stop: Stop
    host_median_ns: float | None = None
    judge_ns: float | None = None  # the least that the judge's own clock allows, claims aside
    judge_most_ns: float | None = None  # and the most; the two differ by what a bracket may cost
    floor_ns: float | None = None
    classes: tuple[str, ...] = ()  # "multi-stream", "graph", "synchronises", "host bound"
    blocks: tuple[Block, ...] = field(default=(), repr=False)
    process_medians_ns: tuple[float, ...] = ()  # what `median_ns` is the centre of, by process


@dataclass(frozen=True, slots=True)
class Passed:
    check: Check
    timing: Timing | None = None


#: What is said of a case that met the end of the run's time: the first was running, the others came
#: too late; and of one that no worker was left for.  Views count these instead of telling them.
RUN_TOO_LONG = "the run took longer than its time limit (--timeout)"
NOT_TRIED = "not tried: its process had to be replaced too often"


@dataclass(frozen=True, slots=True)
class Failed:
    verdict: Verdict
    message: str
    check: Check | None = None


Outcome: TypeAlias = Passed | Failed


@dataclass(frozen=True, slots=True)
class CaseResult:
    case: Case
    outcome: Outcome

    @property
    def verdict(self) -> Verdict:
        return self.outcome.verdict if isinstance(self.outcome, Failed) else Verdict.PASSED

    @property
    def message(self) -> str:
        return self.outcome.message if isinstance(self.outcome, Failed) else ""

    @property
    def timing(self) -> Timing | None:
        return self.outcome.timing if isinstance(self.outcome, Passed) else None


def reduced_precision(results: Sequence[CaseResult]) -> bool:
    """Whether all passed, and some were less exact than float32 sums."""
    return all(isinstance(r.outcome, Passed) for r in results) and any(
        isinstance(r.outcome, Passed) and r.outcome.check.strict_mismatches for r in results
    )


def without_floor(clock: Clock, results: Sequence[CaseResult]) -> bool:
    """Whether a time of a GPU's was held against no floor."""
    timings = [r.timing for r in results if r.timing is not None]
    return clock is not Clock.HOST and any(timing.floor_ns is None for timing in timings)


def reached(failed: Sequence[CaseResult]) -> list[CaseResult]:
    """Of cases that did not pass, those that somebody tried; one at least where there are any."""
    tried, over = [], False
    for case in failed:
        late = case.message == RUN_TOO_LONG
        if not (case.message == NOT_TRIED or (late and over)):
            tried.append(case)
        over = over or late
    return tried or list(failed[:1])


def alike(failed: Sequence[CaseResult], why: Callable[[CaseResult], str]) -> list[list[CaseResult]]:
    """Cases that failed with the same words together, in the order of the first of each."""
    groups: dict[tuple[Verdict, str], list[CaseResult]] = {}
    for case in failed:
        groups.setdefault((case.verdict, why(case)), []).append(case)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class Run:
    """One submission on one machine in one mode: immutable, written once, failed ones too."""

    id: str
    task: str
    task_digest: str
    mode: Mode
    verdict: Verdict
    message: str
    created_ns: int  # Unix time
    duration_ns: int
    submission: Submission
    device: DeviceInfo
    reference: ReferenceKind
    isolation: Isolation
    clock: Clock
    doubts: tuple[Doubt, ...]
    score_ns: float | None  # geometric mean over all ranked shapes, or None
    cases: tuple[CaseResult, ...]
    harness_version: str
    custom_shapes: bool = False  # --shape replaced the mode's own: never ranked
    environment: tuple[tuple[str, str], ...] = ()
    secret_seed: str = ""  # hex; drawn for this run alone, revealed here after it
    stages: tuple[tuple[str, int], ...] = ()  # where the time of the run went, in ns
    notes: tuple[str, ...] = ()  # advice: static findings, degraded features
    log: str = field(default="", repr=False)
    schema: int = 1


#: As many of a board's first as can be measured again, side by side.
MOST_CONFIRMED = 20


@dataclass(frozen=True, slots=True)
class ShapeStanding:
    """One submission's time on one ranked shape of a board."""

    shape: Shape
    median_ns: float
    low_ns: float
    high_ns: float
    floor_ns: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """A row of a leaderboard."""

    rank: int
    rank_low: int
    rank_high: int
    submission: str
    author: str
    score_ns: float
    low_ns: float
    high_ns: float
    speedup: float | None  # baseline's score / this score
    light_speed: float | None  # geometric mean of published light speed / time
    floor_share: float | None  # geometric mean of measured floor / time
    shapes: tuple[ShapeStanding, ...]
    run: str
    created_ns: int
    doubts: tuple[Doubt, ...]
    isolation: Isolation
    clock: Clock


@dataclass(frozen=True, slots=True)
class Unranked:
    """A run that has no standing, and why."""

    run: str
    submission: str
    author: str
    created_ns: int
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Board:
    """The standings of one task on one device."""

    task: str
    device: str
    standings: tuple[Standing, ...]
    unranked: tuple[Unranked, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """A run without its samples, texts and log: what a standing is made of."""

    id: str
    task: str
    task_digest: str
    mode: Mode
    verdict: Verdict
    message: str
    created_ns: int
    submission: str
    author: str
    sha256: str
    device_kind: str
    device: str
    isolation: Isolation
    clock: Clock
    doubts: tuple[Doubt, ...]
    custom_shapes: bool
    tests: int  # test cases that passed
    failed: int  # cases of any kind that did not
    score_ns: float | None
    low_ns: float | None
    high_ns: float | None
    shapes: tuple[ShapeStanding, ...]
