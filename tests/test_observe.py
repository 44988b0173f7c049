"""What a profiler saw fits into one message, and its sums stay what they were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch._C._autograd import DeviceType

from harness.devices.observe import _facts, _fitting, _outermost, _Piece


def test_an_operator_within_another_is_not_counted_twice() -> None:
    pieces = [_Piece(0, 0, 100, "matmul"), _Piece(0, 10, 80, "mv"), _Piece(0, 20, 60, "addmv_"),
              _Piece(0, 100, 30, "sum")]  # fmt: skip
    assert [piece.name for piece in _outermost(pieces)] == ["matmul", "sum"]


def test_few_pieces_stay_as_they_are() -> None:
    pieces = [_Piece(7, 10 * i, 5, "k") for i in range(40)]
    assert _fitting(pieces, 40) == pieces


def test_many_pieces_become_few_of_the_same_span_and_sum() -> None:
    pieces = [_Piece(7, 10 * i, 5 + i % 3, f"k{i % 50}") for i in range(1000)]
    found = _fitting(pieces, 20)
    assert len(found) == 20
    assert sum(p.duration_ns for p in found) == sum(p.duration_ns for p in pieces)
    assert found[0].name.startswith("20 x k") and found[-2].name.endswith(" x others")
    assert max(p.start_ns + p.duration_ns for p in found) == 999 * 10 + 5
    ordered = sorted(found, key=lambda piece: piece.start_ns)
    ends = [piece.start_ns + piece.duration_ns for piece in ordered]
    assert all(end <= after.start_ns for end, after in zip(ends, ordered[1:], strict=False))


def on_stream(*streams: int) -> list[Any]:
    return [SimpleNamespace(device_resource_id=lambda stream=s: stream) for s in streams]


def host(name: str) -> Any:
    return SimpleNamespace(name=lambda: name, device_type=lambda: DeviceType.CPU)


@pytest.mark.parametrize(
    ("called", "current", "facts"),
    [
        ((7, 7), (7,), []),
        ((7, 13), (7,), ["multi-stream"]),
        ((13, 13), (7,), ["multi-stream"]),  # all of it where nobody looks
        ((13,), (), []),  # nothing says which stream is the current one
    ],
)
def test_work_beside_the_current_stream_is_seen(
    called: tuple[int, ...], current: tuple[int, ...], facts: list[str]
) -> None:
    launched = [host("cudaLaunchKernel")]
    assert _facts(on_stream(*called), launched, on_stream(*current)) == facts


def test_a_graphs_kernels_may_be_on_any_one_stream() -> None:
    launched = [host("cudaGraphLaunch")]
    assert _facts(on_stream(13), launched, on_stream(7)) == ["graph"]
    assert _facts(on_stream(13, 14), launched, on_stream(7)) == ["multi-stream", "graph"]
