"""Runs whose times follow from raw samples, as a judge's do."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from collections.abc import Sequence
from typing import Any

from harness import stats, timing
from harness.model import Block, Clock, Run, Shape, Stop, Timing, Verdict
from tests.fakes import CPU, SHAPES, make_case, make_run, make_shape

SECRET = "5eed" * 8


def sampled_timing(
    median_ns: float,
    *,
    seed: int = 0,
    noise: float = 0.004,
    processes: int = 5,
    count: int = 12,
    offset_ns: float = 0.0,
    floor_ns: float | None = None,
    judge_width_ns: float | None = None,
    lie_ns: float = 0.0,
) -> Timing:
    """A timing with its samples; the worker's events are `offset_ns` longer than what counts.

    `judge_width_ns` apart are the least and the most by the judge's clock (None: it saw nothing);
    `lie_ns` is what the worker takes off its own events, and so off what is published.
    """
    rng = random.Random(seed)
    estimates, blocks = [], []
    for process in range(processes):
        centre = median_ns * math.exp(rng.gauss(0, noise / 2))
        times = tuple(round(centre * math.exp(rng.gauss(0, noise))) for _ in range(count))
        claims = tuple(t + round(offset_ns - lie_ns) for t in times)
        blocks.append(Block(process, 1, times, claims, tuple(min(9000, t) for t in times)))
        least = None if judge_width_ns is None else float(stats.median(times))
        most = None if least is None else least + (judge_width_ns or 0.0)
        shown = tuple(t - lie_ns for t in times)
        estimates.append(timing.Estimate(process, shown, least, most))
    return timing.summarise(estimates, blocks, stop=Stop.PRECISION, floor_ns=floor_ns)


def sampled_run(
    name: str = "fast",
    *,
    times_us: Sequence[float] = (20.0, 40.0, 10.0),
    seed: int = 0,
    clock: Clock = Clock.WORKER,
    families: Sequence[str] = ("competition", "competition", "normal"),
    source: str = "x = 1\n",
    floor: float | None = 0.6,
    shapes: Sequence[Shape] = SHAPES,
    judge_width_ns: float | None = 1000.0,
    lie_ns: float = 0.0,
    **changes: Any,
) -> Run:
    """A ranked run that passed; `changes` go to make_run.

    The host's clock is a CPU's, any other a GPU's, of which `floor` is a share of each time.
    """
    if clock is Clock.HOST:
        changes, floor = {"device": CPU, **changes}, None
    run = make_run(name, times_us=times_us, shapes=shapes, **changes)
    timed = [
        sampled_timing(
            us * 1000,
            seed=seed * 100 + i,
            offset_ns=0 if clock is Clock.HOST else 1500 + 10 * i,
            floor_ns=floor and floor * us * 1000,
            judge_width_ns=None if clock is Clock.HOST else judge_width_ns,
            lie_ns=lie_ns,
        )
        for i, us in enumerate(times_us)
    ]
    cases = [make_case(s, t) for s, t in zip(shapes, timed, strict=True)]
    digest = source_sha256(source)
    return dataclasses.replace(
        run,
        cases=(*(make_case(make_shape(256, 512, 2), inputs=family) for family in families), *cases),
        score_ns=(
            stats.geometric_mean([t.median_ns for t in timed])
            if run.verdict is Verdict.PASSED
            else None
        ),
        clock=clock,
        secret_seed=SECRET,
        submission=dataclasses.replace(run.submission, source=source, sha256=digest),
    )


def source_sha256(source: str) -> str:
    """The hash that a submission of this text has."""
    return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()
