"""How long a board of 100,000 runs of 200 submissions takes, and its page.

    python benchmarks/big_board.py [RUNS] [SUBMISSIONS]

Prints the wall time of whole processes: `harness leaderboard`, its --json, its --html.  Every row
is a real one; only the 200 runs that stand have their samples beside them (600 each), for the
others are never read.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness import codec, database, stats, timing  # noqa: E402
from harness.model import Block, Run, Stop, Timing  # noqa: E402
from harness.store import _row, open_store  # noqa: E402
from tests.fakes import SHAPES, make_case, make_run, make_shape  # noqa: E402

FAMILIES = ("competition", "all_codes", "normal", "masked", "subnormal", "cancellation", "impulse")


def sampled(rng: random.Random, median_ns: float, processes: int = 5, count: int = 40) -> Timing:
    """A timing as a GPU gives one, with its raw samples."""
    estimates, blocks = [], []
    for process in range(processes):
        centre = median_ns * math.exp(rng.gauss(0, 0.002))
        times = tuple(round(centre * math.exp(rng.gauss(0, 0.004))) for _ in range(count))
        blocks.append(Block(process, 1, times, times, (9000,) * count))
        estimates.append(timing.Estimate(process, tuple(map(float, times))))
    return timing.summarise(estimates, blocks, stop=Stop.PRECISION, floor_ns=0.6 * median_ns)


def whole(rng: random.Random, run: Run, times_us: tuple[float, ...]) -> Run:
    """The run with 40 test cases and all samples, as one that stands has them."""
    tests = [make_case(make_shape(256, 512, 2), inputs=f) for f in FAMILIES for _ in range(6)]
    timed = [sampled(rng, t * 1000) for t in times_us]
    cases = [make_case(s, t) for s, t in zip(SHAPES, timed, strict=True)]
    score = stats.geometric_mean([t.median_ns for t in timed])
    return dataclasses.replace(run, cases=(*tests, *cases), score_ns=score)


def fill(path: Path, runs: int, submissions: int) -> None:
    """Make a database of so many ranked runs."""
    rng = random.Random(1)
    speeds = [math.exp(rng.uniform(0, 1.5)) for _ in range(submissions)]
    empty = zlib.compress(b"{}")
    with open_store(f"sqlite:///{path}", create=True) as store, store._engine.connect() as link:
        rows, details = [], []
        for i in range(runs):
            who = i % submissions
            factor = speeds[who] * math.exp(rng.gauss(0, 0.004))
            times = (20.0 * factor, 40.0 * factor, 10.0 * factor)
            run = make_run(f"kernel_{who}", author=f"author_{who % 60}", id=f"r{i:07d}",
                           created=60.0 * i, times_us=times)  # fmt: skip
            data = empty
            if i >= runs - submissions:
                run = whole(rng, run, times)
                data = zlib.compress(json.dumps(codec.encode(run)).encode())
            rows.append(_row(run))
            details.append({"run": run.id, "data": data})
        with link.execution_options(write=True).begin():
            link.execute(database.runs.insert(), rows)
            link.execute(database.details.insert(), details)


def measured(folder: Path, arguments: list[str]) -> str:
    """Wall and processor time of one whole `harness` process, the best of three each.

    Outside of any task's folder: the boards are of a task that is not there.
    """
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from harness.cli import main; main()"
    walls, loads = [], []
    for _ in range(3):
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=folder, check=True, capture_output=True
        )
        walls.append(time.perf_counter() - begin)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        loads.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        assert b"kernel_" in done.stdout or b"wrote" in done.stdout, done.stdout
    return f"{min(walls):.2f} s ({min(loads):.2f} s of processor)"


def main() -> None:
    runs, submissions = (int(a) for a in (*sys.argv[1:], "100000", "200")[:2])
    with tempfile.TemporaryDirectory() as folder:
        path, page = Path(folder) / "board.db", Path(folder) / "board.html"
        begin = time.perf_counter()
        fill(path, runs, submissions)
        made = time.perf_counter() - begin
        size = path.stat().st_size / 1e6
        print(f"{runs} runs of {submissions} submissions, {size:.0f} MB, made in {made:.0f} s")
        common = ["leaderboard", "--db", f"sqlite:///{path}"]
        print(f"leaderboard         {measured(path.parent, common)}")
        print(f"leaderboard --json  {measured(path.parent, [*common, '--json'])}")
        took = measured(path.parent, [*common, "--html", str(page)])
        print(f"leaderboard --html  {took}, {page.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
