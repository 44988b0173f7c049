"""Three other ways of timing one submission, in one fresh process, and the truth about it.

    python -m benchmarks.rivals FILE M K L

Waits for a line on standard input before it touches the GPU, so that a machine can load it while
something else is timed.  The last line it prints is one JSON object: method -> figure or why not.

* contest: what GPU MODE's NVFP4 tasks do.  Events around the call behind a 4 GiB flush, fresh
  inputs and a check each time, one process; ends when the standard error is below 0.1% of the mean.
* do_bench: triton.testing.do_bench as it comes.
* cupti: first kernel's start to last kernel's end, a flush by writing and a synchronise before.
* truth: the sum of the kernels' durations, the L2 cold, clean and with nothing pinned.
"""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.figures import METHODS, Missing, Outcome, figure
from reference.oracle import exact
from task.generator import generate_input

#: The contest's rule (nvidia/eval.py of its task): at least 3 samples and 100 ms, at most 1000.
CONTEST_LEAST, CONTEST_LEAST_NS, CONTEST_MOST = 3, 100_000_000, 1000
CONTEST_ERROR = 0.001
#: Its 120 s are for a contest; this is for a comparison of seven submissions that should end.
CONTEST_LIMIT_NS = 4_000_000_000
CONTEST_FLUSH = 1 << 30  # float32 random numbers, 4 GiB
CONTEST_WARM_UP = 5
#: Calls of each kind under CUPTI.
CUPTI_CALLS = 40
#: One call's device activities: start and duration of each, in ns.
Call: TypeAlias = list[tuple[int, int]]
_T = TypeVar("_T")


def contest(sample: Callable[[], float], now: Callable[[], int]) -> list[float]:
    """Samples until the contest's rule is satisfied; it looks after every one."""
    begin_ns, times = now(), [sample()]
    while len(times) < CONTEST_MOST:
        spent_ns = now() - begin_ns
        if len(times) >= CONTEST_LEAST:
            error = statistics.stdev(times) / math.sqrt(len(times))
            precise = error < CONTEST_ERROR * statistics.fmean(times)
            if (precise and spent_ns >= CONTEST_LEAST_NS) or spent_ns >= CONTEST_LIMIT_NS:
                break
        times.append(sample())
    return times


def split(activities: Sequence[tuple[str, int, int]]) -> list[tuple[bool, Call]]:
    """Device activities (name, start, duration) as calls, each with whether its L2 was clean.

    `fill` and `read_all` are the flushes of harness.devices.bodies: what comes before the next one
    is one call.  ValueError when a call ran nothing, since then something was not recorded.
    """
    calls: list[tuple[bool, Call]] = []
    for name, start, duration in sorted(activities, key=lambda activity: activity[1]):
        if name == "fill":
            calls.append((False, []))
        elif name == "read_all" and calls:
            calls[-1] = (True, calls[-1][1])
        elif calls:
            calls[-1][1].append((start, duration))
    if not calls or not all(call for _, call in calls):
        raise ValueError("CUPTI recorded no kernel for some call")
    return calls


def span_ns(call: Call) -> float:
    """First start to last end."""
    return max(start + duration for start, duration in call) - min(start for start, _ in call)


def busy_ns(call: Call) -> float:
    """What all activities took together."""
    return sum(duration for _, duration in call)


class Gpu:
    """One submission and one shape on the current GPU."""

    def __init__(self, path: Path, sizes: Sequence[int]) -> None:
        from harness.devices.bodies import Bodies, events  # needs CUDA's bindings

        self._sizes, self._seed = sizes, 1
        size = 4 * torch.cuda.get_device_properties(0).L2_cache_size
        self._dirty = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._clean = torch.zeros(size, dtype=torch.uint8, device="cuda")
        self._bodies, (self._begin, self._end) = Bodies(0), events(2)
        self._kernel = load(path)
        self.checked_call()  # compiles

    def fresh(self) -> Any:
        """Other inputs of the same shape."""
        m, k, batches = self._sizes
        self._seed += 13
        return generate_input(m, k, batches, self._seed, device="cuda")

    def checked_call(self) -> float:
        """One sample as the contest takes it, in ns.  Raises ValueError for a wrong answer."""
        data = self.fresh()
        torch.cuda.synchronize()
        torch.randn(CONTEST_FLUSH, device="cuda")
        self._begin.record()
        result = self._kernel(data)
        self._end.record()
        torch.cuda.synchronize()
        expected = exact(data).expected.double()
        if not torch.allclose(result.double(), expected, rtol=1e-3, atol=1e-3):
            raise ValueError("wrong answer")
        return float(self._begin.elapsed_time(self._end)) * 1e6

    def contest(self) -> list[float]:
        for _ in range(CONTEST_WARM_UP):
            self.checked_call()
        return contest(self.checked_call, time.monotonic_ns)

    def do_bench(self) -> list[float]:
        from triton.testing import do_bench

        data = self.fresh()
        times = do_bench(lambda: self._kernel(data), return_mode="all")
        torch.cuda.synchronize()
        return [ms * 1e6 for ms in times]

    def cupti(self) -> list[tuple[bool, Call]]:
        """Calls behind a flush by writing and calls behind a clean flush, in turn."""
        from harness.devices.driver import reset_persisting_l2

        data = self.fresh()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for number in range(2 * CUPTI_CALLS):
                torch.cuda.synchronize()
                clean = number % 2 == 1
                if clean:
                    reset_persisting_l2()
                self._bodies.fill(self._dirty, number)
                if clean:
                    self._bodies.read(self._clean)
                torch.cuda.synchronize()
                self._kernel(data)
            torch.cuda.synchronize()
        assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
        events = profiler.profiler.kineto_results.events()
        return split(
            [
                (e.name(), e.start_ns(), e.duration_ns())
                for e in events
                if e.device_type() == DeviceType.CUDA and "Sync" not in e.name()
            ]
        )


def load(path: Path) -> Callable[[Any], Any]:
    """The file's custom_kernel."""
    spec = importlib.util.spec_from_file_location("submission", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    spec.loader.exec_module(module)
    found: Callable[[Any], Any] = module.custom_kernel
    return found


def attempt(take: Callable[[], _T]) -> _T | Missing:
    """What a method gives, or why it gives nothing: one that fails must not end the others."""
    try:
        return take()
    except Exception as error:  # noqa: BLE001 - a method runs a submission, which may raise anything
        return Missing(f"{type(error).__name__}: {error}")


def measure(gpu: Any, start_ns: int) -> dict[str, Outcome]:
    """Every method's outcome; `start_ns` is what came before all of them."""
    results: dict[str, Outcome] = {}
    for name, method in (("contest", gpu.contest), ("do_bench", gpu.do_bench)):
        begin_ns = time.monotonic_ns()
        times = attempt(method)
        wall_ns = start_ns + time.monotonic_ns() - begin_ns
        if isinstance(times, Missing):
            results[name] = times
        else:
            results[name] = figure(times, wall_ns, publishes="mean")
    begin_ns = time.monotonic_ns()
    calls = attempt(gpu.cupti)
    wall_ns = start_ns + time.monotonic_ns() - begin_ns
    for name, clean, cost in (("cupti", False, span_ns), ("truth", True, busy_ns)):
        if isinstance(calls, Missing):
            results[name] = calls
            continue
        costs = [cost(call) for was_clean, call in calls if was_clean == clean]
        results[name] = figure(costs, wall_ns, publishes="median")
    return results


def everything(path: Path, sizes: Sequence[int], imports_ns: int) -> dict[str, Outcome]:
    """Load and compile the submission, then try every method."""
    begin_ns = time.monotonic_ns()
    gpu = attempt(lambda: Gpu(path, sizes))
    if isinstance(gpu, Missing):
        return dict.fromkeys(METHODS, gpu)
    return measure(gpu, imports_ns + time.monotonic_ns() - begin_ns)


def main() -> None:
    """See the module's own text."""
    path, *sizes = sys.argv[1:]
    imports_ns = time.process_time_ns()  # one thread, so about the time that it took
    sys.stdin.readline()
    found = everything(Path(path), [int(size) for size in sizes], imports_ns)
    sys.stdout.write(f"\n{json.dumps({name: asdict(r) for name, r in found.items()})}\n")


if __name__ == "__main__":
    main()
