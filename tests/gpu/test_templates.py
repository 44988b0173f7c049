"""Every starting point that `harness new` writes is right on a GPU, for every case of the task."""

from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path

import pytest

from harness.commands.new import KINDS
from harness.model import Job, Mode, Verdict
from harness.pool import run_job
from harness.sources import submission_of
from tests.gpu.judging import DEVICE

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
#: What a kind needs that torch's own wheels do not bring.
NEEDS = {"cute": "cutlass"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_starting_point_is_right(kind: str) -> None:
    needed = NEEDS.get(kind, "torch")
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    text = resources.files("harness").joinpath("templates", f"{kind}.py").read_bytes()
    submission = submission_of(Path(f"{kind}.py"), text, None)
    run = run_job(Job(str(ROOT), submission, DEVICE, Mode.TEST), lambda progress: None)
    assert run.verdict is Verdict.PASSED, f"{run.message}\n{run.log}"
