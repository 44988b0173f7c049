"""A worker that leaves the judge no device memory is what fails, not the judge."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness import trial
from harness.errors import DeviceError
from harness.model import Failed, Tolerance, Verdict


class FakeBench:
    ended = False

    def end(self) -> None:
        self.ended = True


def attempt(bench: Any, prepare: Any) -> Any:
    modules: Any = None
    return trial.attempt(bench, prepare, Tolerance(0, 0), modules, timed=True)


def test_memory_that_is_there_without_the_worker_was_the_workers() -> None:
    bench = FakeBench()

    def prepare() -> None:
        if not bench.ended:
            raise torch.cuda.OutOfMemoryError

    found = attempt(bench, prepare)
    assert isinstance(found, Failed)
    assert found.verdict is Verdict.OUT_OF_MEMORY


def test_memory_that_is_missing_without_the_worker_is_the_machines() -> None:
    def prepare() -> None:
        raise torch.cuda.OutOfMemoryError

    with pytest.raises(DeviceError, match="too little memory"):
        attempt(FakeBench(), prepare)
