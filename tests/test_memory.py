"""The judge is refused memory before the kernel ends it."""

from __future__ import annotations

import resource

import pytest
import torch

from harness import memory
from harness.errors import DeviceError


def test_more_than_is_free_is_refused_with_the_shape_and_the_limit_is_lifted_again() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(DeviceError, match="128x256x1: .*GiB free"), memory.enough_for("128x256x1"):
        torch.empty(1 << 42, dtype=torch.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with pytest.raises(DeviceError), memory.enough_for("x"):
        bytearray(1 << 42)


def test_what_fits_is_given_and_other_errors_stay_what_they_are() -> None:
    with memory.enough_for("x"):
        assert torch.zeros(1 << 20).sum() == 0
    with pytest.raises(RuntimeError, match="another"), memory.enough_for("x"):
        raise RuntimeError("another")


def test_where_the_kernel_does_not_say_what_is_free_nothing_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_field", lambda path, name: 0)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory.enough_for("x"):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
