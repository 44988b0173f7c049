"""Four ways of timing the same submissions, side by side on one GPU.

    python -m benchmarks.methods [--runs N] [--budget SECONDS] [--only NAME]... [--shape MxKxL]

The submissions in timed/ run one kernel, that of submissions/triton_graph.py, each in another
way; rivals.py holds the other methods.  Rounds go over all submissions, and no further one begins
that the budget would not see ended.  Prints Markdown for docs/measurements/.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pynvml
import yaml

from benchmarks.figures import METHODS, Entry, Figure, Missing, Outcome, Subject, table, verdict
from harness import device_lock
from harness.devices import present
from harness.errors import HarnessError
from harness.model import CaseKind, Job, Mode, Run, Shape
from harness.pool import run_job
from harness.sources import submission_of

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "timed"
NAMES = (
    "plain",
    "unordered",
    "unordered_synchronised",
    "ordered_synchronised",
    "host_bound",
    "graph",
    "pins_l2",
)
UNORDERED = ("unordered", "unordered_synchronised")
OURS = "harness"
PROCESSES = 2  # fresh worker processes of one run of ours
RIVALS_S = 120.0  # a process that has not ended by then hangs


def source_of(name: str) -> str:
    """A submission of timed/ in one file: the kernel's source in front, at the same lines in all.

    Triton's compile cache asks for the same lines.
    """
    kernel = (ROOT / "submissions" / "triton_graph.py").read_text(encoding="utf-8")
    lines = (FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()
    own = "\n".join(line for line in lines if not line.startswith("from triton_graph import"))
    return f"{kernel}\n\n{own}\n"


def copy_task(target: Path) -> None:
    """The shipped task with the contest's own inputs only: this is about clocks."""
    for folder in ("task", "reference"):
        shutil.copytree(ROOT / folder, target / folder)
    document = yaml.safe_load((ROOT / "shapes.yaml").read_text(encoding="utf-8"))
    document["inputs"] = document["inputs"][:1]
    (target / "shapes.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")


def ours(name: str, root: Path, sizes: Sequence[int], device: str) -> Outcome:
    """One `harness run` of a submission, as a user would have it."""
    shape = Shape(tuple(zip(("m", "k", "l"), sizes, strict=True)))
    submission = submission_of(Path(f"{name}.py"), source_of(name).encode(), None)
    job = Job(str(root), submission, device, Mode.BENCHMARK, (shape,), processes=PROCESSES)
    begin_ns = time.monotonic_ns()
    try:
        run = run_job(job, lambda progress: None)
    except HarnessError as error:
        return Missing(str(error))
    return figure_of(run, time.monotonic_ns() - begin_ns)


def figure_of(run: Run, wall_ns: int) -> Outcome:
    """What our own run says of the one shape that it timed."""
    timed = [case for case in run.cases if case.case.kind is CaseKind.BENCHMARK]
    timing = timed[-1].timing if timed else None
    if timing is None:
        return Missing(f"{run.verdict}: {run.message}")
    note = ", ".join(dict.fromkeys((*timing.classes, *run.doubts)))
    median_ns = timing.median_ns
    return Figure(median_ns, timing.mean_ns, median_ns, timing.samples, wall_ns, note)


class Rivals:
    """A process of rivals.py: loads torch at once, touches the GPU when it is told to."""

    def __init__(self, name: str, sizes: Sequence[int], folder: Path, device: str) -> None:
        path = folder / f"{name}.py"
        path.write_text(source_of(name), encoding="utf-8")
        self._device = device
        index = int(device.partition(":")[2] or 0)
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")  # where a caller gives us one GPU of many
        gpu = chosen.split(",")[index] if chosen else str(index)
        shape = [str(size) for size in sizes]
        self._process = subprocess.Popen(
            ["env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", f"CUDA_VISIBLE_DEVICES={gpu}"]
            + [sys.executable, "-B", "-m", "benchmarks.rivals", str(path), *shape],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def outcomes(self) -> dict[str, Outcome]:
        """Let it begin, and wait for what it found."""
        try:
            with device_lock.hold(present.visible(self._device), waiting=lambda: None):
                out, err = self._process.communicate("go\n", timeout=RIVALS_S)
        except subprocess.TimeoutExpired:
            self.close()
            return dict.fromkeys(METHODS, Missing(f"no answer within {RIVALS_S:g} s"))
        return parse(out, err)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.communicate()


def parse(out: str, err: str) -> dict[str, Outcome]:
    """The outcomes in a rivals process's last line, or its last words as the reason for none."""
    try:
        found = json.loads(out.strip().splitlines()[-1])
        return {n: Missing(**d) if "why" in d else Figure(**d) for n, d in found.items()}
    except (IndexError, ValueError, TypeError, AttributeError):
        words = [line for line in err.splitlines() if line.strip()]
        return dict.fromkeys(METHODS, Missing(words[-1] if words else "it printed nothing"))


def add(subject: Subject, found: dict[str, Outcome]) -> Subject:
    """The subject with one more run of each method that has one."""
    truth, *entries = (
        replace(e, outcomes=(*e.outcomes, found[e.method])) if e.method in found else e
        for e in (subject.truth, *subject.entries)
    )
    return replace(subject, truth=truth, entries=tuple(entries))


def one_round(subject: Subject, root: Path, sizes: Sequence[int], device: str) -> Subject:
    """Every method once.  Ours runs while nobody else has a context on the GPU."""
    ours_entry = subject.entries[0]
    rivals = Rivals(subject.name, sizes, root, device)
    found: dict[str, Outcome] = {}
    try:
        # A submission that was refused is refused again: once is enough to know.
        if not ours_entry.outcomes or ours_entry.figures:
            found[OURS] = ours(subject.name, root, sizes, device)
        found |= rivals.outcomes()
    finally:
        rivals.close()
    return add(subject, found)


def compare(options: argparse.Namespace) -> list[Subject]:
    """All rounds, as far as the budget goes; the first one is always completed."""
    sizes = [int(size) for size in options.shape.split("x")]
    methods = (OURS, *METHODS[:-1])
    subjects = [
        Subject(
            name,
            Entry(METHODS[-1], ()),
            tuple(Entry(method, ()) for method in methods),
            ordered=name not in UNORDERED,
        )
        for name in options.only or NAMES
    ]
    begin_s, cost_s = time.monotonic(), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_task(root)
        for number in range(options.runs):
            for index, subject in enumerate(subjects):
                now_s = time.monotonic()
                if number and now_s - begin_s + cost_s[subject.name] > options.budget:
                    continue
                sys.stderr.write(f"{now_s - begin_s:6.1f} s  round {number + 1}  {subject.name}\n")
                subjects[index] = one_round(subject, root, sizes, options.device)
                cost_s[subject.name] = time.monotonic() - now_s
    return subjects


def machine(device: str) -> str:
    """The GPU, its driver and the versions that matter, for the reader of the table."""
    versions = ", ".join(f"{name} {_version(name)}" for name in ("torch", "triton"))
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(device.partition(":")[2] or 0))
        name = pynvml.nvmlDeviceGetName(handle)
        return f"{name}, driver {pynvml.nvmlSystemGetDriverVersion()}, {versions}"
    except pynvml.NVMLError as error:
        return f"no GPU ({error}), {versions}"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; 1 when no method gave any figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="rounds (3)")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for all (120)")
    parser.add_argument("--only", action="append", choices=NAMES, help="submissions (all)")
    parser.add_argument("--shape", default="7168x2048x4", help="MxKxL; fits an L2 of 50 MB")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args(arguments)
    subjects = compare(options)
    today = time.strftime("%Y-%m-%d")
    sys.stdout.write(f"{options.shape} on {machine(options.device)}, {today}\n\n")
    sys.stdout.write(f"{table(subjects)}\n\n")
    sys.stdout.writelines(f"- {verdict(subject)}\n" for subject in subjects)
    return 0 if any(e.figures for s in subjects for e in s.entries) else 1


if __name__ == "__main__":
    sys.exit(main())
