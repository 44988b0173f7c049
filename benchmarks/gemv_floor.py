"""Every submission beside kernels that only read the same bytes: one run, one table.

    python benchmarks/gemv_floor.py [NAME ...] [--samples N]

Needs a CUDA device and nvcc.  Everything runs in this process, so the times are not a judge's;
they are for work on kernels.  Each sample starts from an L2 full of clean lines that belong to
nobody (256 MB written, another 256 MB read), behind a delay that hides the launch.  Times are
CUDA event pairs: `pair` is what such a pair reads with nothing in between, and it is in every
time shown.  The floor is the best of the read kernels below, whatever its kind.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from reference import compulsory_bytes, exact, strict_slack  # noqa: E402  the path comes first
from task import generate_input  # noqa: E402

Kernel: TypeAlias = Callable[[tuple[torch.Tensor, ...]], torch.Tensor]

SHAPES = ((7168, 16384, 1), (4096, 7168, 8), (7168, 2048, 4))
FAMILIES = ("competition", "normal")  # checked beside the timing
FLUSH_BYTES = 256 << 20  # over four times the H200's L2
DELAY_NS = 30_000  # longer than any launch from Python seen here

#: Plain reader: loads in flight per thread, blocks.  Bulk reader: tile, tiles in flight, blocks.
PLAIN = tuple((unroll, blocks) for unroll in (2, 4, 8) for blocks in (264, 528, 1056, 2112, 4224))
BULK = tuple(
    (tile << 10, slots, blocks)
    for tile in (9, 18, 36)
    for slots in (2, 3, 4)
    for blocks in (128, 132, 256, 264)
)


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    times: Times
    wrong: str  # rows outside the strict tier, by input family


class Bench:
    """A stream of samples from a cold, clean L2."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.floor = build("read_floor.cu")
        self.buffer = torch.ones(2 * FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self.sink = torch.zeros(1, dtype=torch.int32, device="cuda")

    def time(self, call: Callable[[], Any]) -> Times:
        """p10, median and p90 of `call`, after three that do not count."""
        times = []
        cuda: Any = torch.cuda  # partly untyped
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        for i in range(self.samples + 3):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            buffer, size = ctypes.c_void_p(self.buffer.data_ptr()), ctypes.c_size_t(FLUSH_BYTES)
            sink = ctypes.c_void_p(self.sink.data_ptr())
            launch(self.floor.flush, buffer, size, i, sink, ctypes.c_longlong(DELAY_NS), stream)
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            if i >= 3:
                times.append(start.elapsed_time(end) * 1e3)
        times.sort()
        last = len(times) - 1
        return Times(times[last // 10], statistics.median(times), times[last * 9 // 10])

    def read_floors(self, size: int) -> dict[str, Times]:
        """Every reader's times for `size` bytes, by its name and settings."""
        source = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
        pointer, count = ctypes.c_void_p(source.data_ptr()), ctypes.c_size_t(size)
        sink = ctypes.c_void_p(self.sink.data_ptr())
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        found = {}
        for plain in PLAIN:
            call = partial(launch, self.floor.read_plain, pointer, count, *plain, sink, stream)
            found[f"read, {plain[0]} loads, {plain[1]} blocks"] = self.time(call)
        for bulk in BULK:
            call = partial(launch, self.floor.read_bulk, pointer, count, *bulk, stream)
            name = f"bulk read, {bulk[1]} x {bulk[0] >> 10} KiB, {bulk[2]} blocks"
            found[name] = self.time(call)
        return found


def launch(function: Callable[..., int], *arguments: Any) -> None:
    """Call a launcher; its CUDA error is an exception."""
    error = function(*arguments)
    if error:
        raise RuntimeError(f"CUDA error {error}")


def build(name: str) -> ctypes.CDLL:
    """benchmarks/<name> as a loaded library."""
    extension: Any = importlib.import_module("torch.utils.cpp_extension")
    major, minor = torch.cuda.get_device_capability()
    target = f"{major}{minor}" + ("a" if major >= 9 else "")
    path = extension.load_inline(
        name.replace(".", "_"),
        cpp_sources="",
        cuda_sources=(ROOT / "benchmarks" / name).read_text(),
        no_implicit_headers=True,
        is_python_module=False,
        build_directory=tempfile.mkdtemp(prefix="gemv_floor_"),
        extra_cuda_cflags=["-O3", f"-gencode=arch=compute_{target},code=sm_{target}"],
    )
    return ctypes.CDLL(str(path))


def header_port() -> Kernel:
    """header_port.cu as if it were a submission's `custom_kernel`."""
    library = build("header_port.cu")

    def custom_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
        a, b, sfa, sfb, _, _, c = data
        m, half_k, batches = a.shape
        tensors = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, sfa, sfb, c))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        launch(library.gemv_header, *tensors, m, 2 * half_k, batches, stream)
        return c

    return custom_kernel


def submission(name: str) -> Kernel:
    """`custom_kernel` of submissions/<name>.py."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "submissions" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.custom_kernel  # type: ignore[no-any-return]


def wrong_rows(call: Kernel, shape: tuple[int, int, int], family: str) -> int:
    """How many of all rows miss the strict tier on one draw of a family."""
    data = generate_input(*shape, 1234, inputs=family, device="cuda")
    truth = exact(data)
    got = call(data).double()
    size = torch.maximum(got.abs(), truth.exact.abs()).clamp_min(2.0**-14)
    half_ulp = torch.exp2(torch.floor(torch.log2(size)) - 11)
    error = (got - truth.exact).abs()
    return int((~(error <= half_ulp + strict_slack(family) * truth.terms)).sum())


def compare(bench: Bench, calls: dict[str, Kernel], shape: tuple[int, int, int]) -> list[Row]:
    """The best reader of each kind, then every call: all on one shape."""
    size = compulsory_bytes(*shape)
    floors = bench.read_floors(size)
    rows = []
    for kind in ("read", "bulk"):
        best = min((n for n in floors if n.startswith(kind)), key=lambda n: floors[n].median)
        rows.append(Row(best, floors[best], ""))
    data = generate_input(*shape, 99, inputs="normal", device="cuda")
    for name, call in calls.items():
        wrong = (f"{family} {wrong_rows(call, shape, family)}" for family in FAMILIES)
        rows.append(Row(name, bench.time(partial(call, data)), ", ".join(wrong)))
    return rows


def show(rows: list[Row], shape: tuple[int, int, int], pair: float) -> dict[str, float]:
    """Print one shape's rows; returns each one's share of the floor."""
    size = compulsory_bytes(*shape)
    floor = min(row.times.median for row in rows[:2])
    print(f"\n{shape[0]}x{shape[1]}x{shape[2]}, {size} bytes, floor {floor:.2f} us")
    print(f"{'':38} {'p10':>7} {'median':>7} {'p90':>7} {'TB/s':>6} {'share':>6} {'less pair':>9}")
    shares = {}
    for row in rows:
        t = row.times
        shares[row.name] = floor / t.median
        less = (floor - pair) / (t.median - pair)
        print(
            f"{row.name:38} {t.low:7.2f} {t.median:7.2f} {t.high:7.2f} {size / t.median / 1e6:6.2f}"
            f" {shares[row.name]:6.3f} {less:9.3f}  {row.wrong}"
        )
    return shares


def mean(values: list[float]) -> float:
    """Geometric."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", default=["cuda_inline", "triton_graph", "torch_compile"]
    )
    parser.add_argument("--samples", type=int, default=100)
    options = parser.parse_args()
    calls: dict[str, Kernel] = {}
    for name in options.names:
        started = time.monotonic()
        calls[name] = submission(name)
        print(f"{name} imported in {time.monotonic() - started:.1f} s")
    calls["(header port)"] = header_port()
    bench = Bench(options.samples)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pair = bench.time(lambda: None).median
    empty = bench.time(partial(launch, bench.floor.empty, stream)).median
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.samples} samples")
    print(f"event pair {pair:.2f} us, with an empty kernel {empty:.2f} us; wrong rows by family")
    times: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    for shape in SHAPES:
        rows = compare(bench, calls, shape)
        for name, share in show(rows, shape, pair).items():
            shares.setdefault(name, []).append(share)
        for row in rows:
            times.setdefault(row.name, []).append(row.times.median)
    print(f"\n{'geometric means':38} {'us':>7} {'share':>7}")
    for name in calls:
        print(f"{name:38} {mean(times[name]):7.2f} {mean(shares[name]):7.3f}", flush=True)


if __name__ == "__main__":
    main()
