"""What honest code does with streams, graphs and memory passes, timed; what looks like it does not.

Each pair holds a right submission and a wrong one that differs by what makes it wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Verdict
from tests.gpu.judging import copy_double, judge, median_ns

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SIZE = 65536

PLAIN = """
def custom_kernel(data):
    return data[0] * 2
"""
#: Two halves on two streams, forked from the current one and joined to it.
JOINED = """
import torch
left, right = torch.cuda.Stream(), torch.cuda.Stream()

def custom_kernel(data):
    x = data[0]
    y = torch.empty_like(x)
    half = x.numel() // 2
    current = torch.cuda.current_stream()
    for stream, part in ((left, slice(0, half)), (right, slice(half, None))):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            torch.mul(x[part], 2, out=y[part])
    current.wait_stream(left)
    current.wait_stream(right)
    return y
"""
#: An event of the submission's own instead of wait_stream, and a wait on the host.
WAITS = """
import torch
side = torch.cuda.Stream()

def custom_kernel(data):
    ready = torch.cuda.Event()
    ready.record()
    side.wait_event(ready)
    with torch.cuda.stream(side):
        y = data[0] * 2
    side.synchronize()
    return y
"""
UNORDERED = """
import torch
side = torch.cuda.Stream()

def custom_kernel(data):
    with torch.cuda.stream(side):
        y = data[0] * 2
    torch.cuda.current_stream().wait_stream(side)
    return y
"""
UNORDERED_SYNCHRONISED = UNORDERED.replace(
    "torch.cuda.current_stream().wait_stream(side)", "side.synchronize()"
)
#: A graph for each address: new contents are read by the replay, new addresses get a new graph.
GRAPH = """
import torch
graphs = {}

def custom_kernel(data):
    x = data[0]
    key = (x.data_ptr(), x.numel())
    if key not in graphs:
        warm = x * 2
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            y = x * 2
        graphs[key] = graph, y
    graph, y = graphs[key]
    graph.replay()
    return y
"""
#: The first address of each size is baked in.
STALE_GRAPH = GRAPH.replace("(x.data_ptr(), x.numel())", "x.numel()")
#: The same memory for the result and for what comes before it, in every call.
WORKSPACE = """
import torch
kept = {}

def custom_kernel(data):
    x = data[0]
    if x.numel() not in kept:
        kept[x.numel()] = torch.empty_like(x), torch.empty_like(x)
    work, y = kept[x.numel()]
    torch.add(x, x, out=work)
    y.copy_(work)
    return y
"""
#: What was computed for the first inputs of each size.
KEPT_ANSWER = """
kept = {}

def custom_kernel(data):
    x = data[0]
    if x.numel() not in kept:
        kept[x.numel()] = x * 2
    return kept[x.numel()]
"""
SCRIBBLES = """
def custom_kernel(data):
    return data[0].mul_(2)
"""

PASSING = {
    "plain": PLAIN,
    "joined": JOINED,
    "waits": WAITS,
    "graph": GRAPH,
    "workspace": WORKSPACE,
}
FAILING = {
    "unordered": (UNORDERED, Verdict.UNORDERED),
    "unordered_synchronised": (UNORDERED_SYNCHRONISED, Verdict.UNORDERED),
    "stale_graph": (STALE_GRAPH, Verdict.WRONG_ANSWER),
    "kept_answer": (KEPT_ANSWER, Verdict.WRONG_ANSWER),
    "scribbles": (SCRIBBLES, Verdict.INPUT_MODIFIED),
}

#: y = 2 x with y among the inputs, as the contest's c is.
IN_PLACE_TASK = """
import torch

input_t = tuple[torch.Tensor, torch.Tensor]
output_t = torch.Tensor


def generate_input(n, seed, *, inputs="competition", device="cpu"):
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.rand(n, generator=generator, device=device)
    return x - 0.5 if inputs == "signed" else x, torch.full_like(x, torch.nan)
"""
IN_PLACE = """
import torch

def custom_kernel(data):
    x, y = data
    torch.mul(x, 2, out=y)
    return y
"""
#: y is written on a stream that nobody waits for, a millisecond after the call.
UNJOINED = """
import torch
side = torch.cuda.Stream()

def custom_kernel(data):
    x, y = data
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000)
        torch.mul(x, 2, out=y)
    return y
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_double(tmp_path_factory.mktemp("honest") / "double")


@pytest.fixture(scope="module")
def in_place_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_double(tmp_path_factory.mktemp("honest") / "in_place")
    (root / "task" / "__init__.py").write_text(IN_PLACE_TASK, encoding="utf-8")
    with (root / "reference" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write("\n\nWRITABLE = (1,)\n")
    return root


@pytest.mark.parametrize("name", PASSING)
def test_honest_code_passes_and_has_a_time(name: str, root: Path) -> None:
    run = judge(PASSING[name], root, timed=SIZE)
    assert run.verdict is Verdict.PASSED, run.message
    assert median_ns(run) > 0


@pytest.mark.parametrize("name", FAILING)
def test_its_wrong_twin_does_not_pass(name: str, root: Path) -> None:
    source, verdict = FAILING[name]
    run = judge(source, root, timed=SIZE)
    assert run.verdict is verdict, run.message


@pytest.mark.parametrize("source", [IN_PLACE, PLAIN], ids=["in_place", "new_tensor"])
def test_the_answer_may_lie_in_the_output_that_was_given_or_in_a_new_one(
    source: str, in_place_root: Path
) -> None:
    run = judge(source, in_place_root, timed=SIZE)
    assert run.verdict is Verdict.PASSED, run.message


def test_an_answer_that_comes_after_the_call_is_unordered(in_place_root: Path) -> None:
    run = judge(UNJOINED, in_place_root, timed=SIZE)
    assert run.verdict is Verdict.UNORDERED, run.message


def test_streams_and_graphs_are_seen(root: Path) -> None:
    for name, expected in (
        ("joined", "multi-stream"),
        ("graph", "graph"),
        ("waits", "synchronises"),
    ):
        run = judge(PASSING[name], root, timed=SIZE)
        (timing,) = [case.timing for case in run.cases if case.timing is not None]
        assert expected in timing.classes, (name, timing.classes)
