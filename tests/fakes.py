"""Small stand-ins for what a machine would measure: runs, cases and times made to order."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from harness.model import (
    Block,
    Case,
    CaseKind,
    CaseResult,
    Check,
    Clock,
    DeviceInfo,
    Doubt,
    Failed,
    Isolation,
    Limits,
    Mode,
    Passed,
    ReferenceKind,
    Run,
    Shape,
    Stop,
    Submission,
    Task,
    Timing,
    Tolerance,
    Verdict,
    Worst,
)

#: 2026-03-01T12:00:00Z, so that golden files do not age.
EPOCH_NS = 1_772_366_400_000_000_000

H200 = DeviceInfo("cuda", "NVIDIA H200", (("driver", "580.1"),))
CPU = DeviceInfo("cpu", "AMD EPYC 9554", (("cores", "2"),))

TASK = "nvfp4_gemv"
DIGEST = "d" * 64


def make_shape(m: int, k: int, l: int, light_us: float | None = None) -> Shape:  # noqa: E741
    light = None if light_us is None else round(light_us * 1000)
    return Shape((("m", m), ("k", k), ("l", l)), light)


SHAPES = (
    make_shape(7168, 16384, 1, 8.622),
    make_shape(4096, 7168, 8, 17.275),
    make_shape(7168, 2048, 4, 4.317),
)


def make_task(*, digest: str = DIGEST, shapes: Sequence[Shape] = SHAPES, name: str = TASK) -> Task:
    return Task(
        name=name,
        root="/nowhere",
        digest=digest,
        axes=("m", "k", "l"),
        tests=(Case(CaseKind.TEST, make_shape(128, 256, 1), "competition", 1111),),
        hard=(),
        ranked=tuple(shapes),
        ranked_seed=1111,
        tolerance=Tolerance(1e-3, 1e-3),
        limits=Limits(),
        inputs=("competition",),
    )


def make_timing(
    median_ns: float, *, noise: float = 0.002, floor_ns: float | None = None, processes: int = 3
) -> Timing:
    """A timing with a 95% interval of `noise` either way and a dozen raw samples a process."""
    blocks = tuple(
        Block(p, 1, samples, samples)
        for p in range(processes)
        for samples in [
            tuple(round(median_ns * (1 + noise * math.sin(3 * i + p))) for i in range(12))
        ]
    )
    return Timing(
        median_ns=median_ns,
        low_ns=median_ns * math.exp(-noise),
        high_ns=median_ns * math.exp(noise),
        mean_ns=median_ns * 1.001,
        std_ns=median_ns * noise,
        best_ns=median_ns * (1 - 2 * noise),
        worst_ns=median_ns * (1 + 3 * noise),
        samples=12 * processes,
        processes=processes,
        stop=Stop.PRECISION,
        host_median_ns=median_ns * 0.4,
        judge_ns=median_ns,
        judge_most_ns=median_ns + 1000,
        floor_ns=floor_ns,
        blocks=blocks,
    )


def make_check(*, mismatches: int = 0) -> Check:
    worst = Worst((3, 0, 0), 12.5, 0.0, 8192.0) if mismatches else None
    return Check(7168, mismatches, 12.5 if mismatches else 0.0, 1.0, 8192.0, worst)


def make_case(
    shape: Shape, timing: Timing | None = None, *, inputs: str = "competition"
) -> CaseResult:
    kind = CaseKind.TEST if timing is None else CaseKind.BENCHMARK
    return CaseResult(Case(kind, shape, inputs, 1111), Passed(make_check(), timing))


def make_failure(
    shape: Shape, verdict: Verdict, message: str, *, inputs: str = "normal"
) -> CaseResult:
    check = make_check(mismatches=7) if verdict is Verdict.WRONG_ANSWER else None
    return CaseResult(Case(CaseKind.TEST, shape, inputs, 1111), Failed(verdict, message, check))


def make_run(
    name: str = "fast",
    *,
    id: str | None = None,
    author: str = "ada",
    times_us: Sequence[float] = (20.0, 40.0, 10.0),
    shapes: Sequence[Shape] = SHAPES,
    noise: float = 0.002,
    floor: float | None = 0.5,
    created: float = 0.0,
    mode: Mode = Mode.RANKED,
    verdict: Verdict = Verdict.PASSED,
    message: str = "",
    device: DeviceInfo = H200,
    doubts: Sequence[Doubt] = (),
    digest: str = DIGEST,
    task: str = TASK,
    custom_shapes: bool = False,
    failures: Sequence[CaseResult] = (),
    sha256: str = "ab" * 32,
    score_ns: float | None | str = "geomean",
    notes: Sequence[str] = (),
    log: str = "",
) -> Run:
    """A ranked run that passed, unless told otherwise.

    `created` is in seconds after EPOCH_NS, `floor` the share of each time that its floor is.
    """
    timed = [
        make_case(shape, make_timing(t * 1000, noise=noise, floor_ns=floor and floor * t * 1000))
        for shape, t in zip(shapes, times_us, strict=False)
    ]
    if score_ns == "geomean":
        logs = [math.log(t * 1000) for t in times_us]
        score_ns = math.exp(sum(logs) / len(logs)) if logs and verdict is Verdict.PASSED else None
    assert not isinstance(score_ns, str)
    created_ns = EPOCH_NS + round(created * 1e9)
    who = f"{author}-{name}".encode(errors="surrogatepass")
    known = who.hex()[:2] + hashlib.sha256(who).hexdigest()
    in_order = f"{round(created * 1000) % 10**6:06d}{known[:6]}"  # of time, then of authors
    return Run(
        id=id or in_order,
        task=task,
        task_digest=digest,
        mode=mode,
        verdict=verdict,
        message=message,
        created_ns=created_ns,
        duration_ns=22_400_000_000,
        submission=Submission(name, f"submissions/{name}.py", sha256, author, "x = 1\n"),
        device=device,
        reference=ReferenceKind.EXACT,
        isolation=Isolation.SANDBOX,
        clock=Clock.HOST if device.kind == "cpu" else Clock.WORKER,
        doubts=tuple(doubts),
        score_ns=score_ns,
        cases=(make_case(make_shape(128, 256, 1)), *failures, *timed),
        harness_version="0.1.0",
        custom_shapes=custom_shapes,
        environment=(("python", "3.11.2"), ("torch", "2.13.0")),
        secret_seed="5eed",
        notes=tuple(notes),
        log=log,
    )
