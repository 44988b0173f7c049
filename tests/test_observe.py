"""What a profiler saw fits into one message, and its sums stay what they were."""

from __future__ import annotations

from harness.devices.observe import _fitting, _outermost, _Piece


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
