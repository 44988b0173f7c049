"""A submission that breaks the GPU gets its verdict; other cases and the next run do not suffer.

Every submission here is right except at n = 1000, the second of the task's three cases.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pynvml
import pytest

from harness.devices import present
from harness.model import Run, Verdict
from tests.gpu.judging import DEVICE, copy_double, judge, median_ns, verdicts

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

CALL_S = 3.0
MEMORY_SLACK_BYTES = 64 << 20
BACK_WITHIN_S = 5.0
#: 64 MiB in, 64 MiB out: memory-bound, and long enough for 5% of it to be more than the clock's.
HONEST_SIZE = 1 << 24
HONEST = """
def custom_kernel(data):
    return data[0] * 2
"""


class Fault(NamedTuple):
    """What the submission does at n = 1000, and what must become of it."""

    body: str
    verdict: Verdict
    said: str  # in the message of that case


FAULTS = {
    # A view that claims to be longer than the memory behind it, written 512 GiB further on.
    "illegal access": Fault(
        """
        class Raw:
            __cuda_array_interface__ = {
                "shape": (1 << 40,), "typestr": "|u1", "data": (x.data_ptr(), False), "version": 3,
            }
        torch.as_tensor(Raw(), device=x.device)[1 << 39 : (1 << 39) + 64].fill_(1)
        return x * 2
        """,
        Verdict.RUNTIME_ERROR,
        "illegal memory access",
    ),
    "assertion in a kernel": Fault(
        """
        far = torch.full((1,), 10**9, dtype=torch.int64, device=x.device)
        return x[far].expand(1000) + x
        """,
        Verdict.RUNTIME_ERROR,
        "assert",
    ),
    "kernel without an end": Fault(
        """
        torch.cuda._sleep(2**62)
        return x * 2
        """,
        Verdict.TIMED_OUT,
        "3 s",
    ),
    "more memory than there is": Fault(
        """
        size = 10 * torch.cuda.get_device_properties(0).total_memory
        return torch.empty(size, dtype=torch.uint8, device=x.device)
        """,
        Verdict.OUT_OF_MEMORY,
        "out of memory",
    ),
    "all the memory there is": Fault(
        """
        while True:
            hoard.append(torch.empty(1 << 28, dtype=torch.uint8, device=x.device))
        """,
        Verdict.OUT_OF_MEMORY,
        "out of memory",
    ),
    "death of the process": Fault(
        """
        torch.cuda._sleep(10**8)
        os.kill(os.getpid(), 9)
        """,
        Verdict.CRASHED,
        "",
    ),
}


def source_of(fault: Fault) -> str:
    lines = [line.removeprefix("    ") for line in fault.body.splitlines()]
    head = [
        "import os",
        "import torch",
        "hoard = []",
        "def custom_kernel(data):",
        "    x = data[0]",
    ]
    return "\n".join([*head, "    if x.numel() != 1000:", "        return x * 2", *lines])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_double(tmp_path_factory.mktemp("faults") / "double", call_s=CALL_S)


@pytest.fixture(scope="module")
def honest_ns(root: Path) -> float:
    """What the honest submission takes before anything was broken."""
    return median_ns(judge(HONEST, root, timed=HONEST_SIZE))


@pytest.fixture
def memory_comes_back() -> Iterator[None]:
    """Whoever uses this leaves as much GPU memory in use as there was, a few seconds later."""
    pynvml.nvmlInit()
    before = _used_bytes()
    yield
    until = time.monotonic() + BACK_WITHIN_S
    while _used_bytes() > before + MEMORY_SLACK_BYTES and time.monotonic() < until:
        time.sleep(0.05)
    assert _used_bytes() <= before + MEMORY_SLACK_BYTES


def _used_bytes() -> int:
    handle = pynvml.nvmlDeviceGetHandleByUUID(present.visible(DEVICE))
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_its_own_case_and_nothing_else(
    name: str, root: Path, honest_ns: float, memory_comes_back: None
) -> None:
    fault = FAULTS[name]
    run = judge(source_of(fault), root)
    assert verdicts(run) == {"8": Verdict.PASSED, "1000": fault.verdict, "64": Verdict.PASSED}
    assert run.verdict is fault.verdict
    assert fault.said in run.message, run.message
    _assert_not_slower(run)


def test_a_submission_that_always_faults_has_a_verdict_for_every_case(
    root: Path, memory_comes_back: None
) -> None:
    source = source_of(FAULTS["illegal access"]).replace("!= 1000", "< 0")
    run = judge(source, root)
    assert set(verdicts(run)) == {"8", "1000", "64"}
    assert set(verdicts(run).values()) == {Verdict.RUNTIME_ERROR}


def test_after_all_of_this_an_honest_run_takes_what_it_took(root: Path, honest_ns: float) -> None:
    run = judge(HONEST, root, timed=HONEST_SIZE)
    assert run.verdict is Verdict.PASSED
    _assert_not_slower(run)
    assert median_ns(run) == pytest.approx(honest_ns, rel=0.05)


def _assert_not_slower(run: Run) -> None:
    """The judge itself read at full speed when the workers were gone."""
    assert not [note for note in run.notes if "slower" in note], run.notes
