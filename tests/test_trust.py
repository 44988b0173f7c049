"""Small rules that all rests on: seeds, answers, places, what a worker may say of itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from harness import verdicts, wire
from harness.compile_cache import cache_key
from harness.devices.cpu import poison
from harness.exchange import spec_of
from harness.model import RUN_TOO_LONG, Failed, Passed, Tolerance, Verdict
from harness.prepare import Seeds
from harness.session import Session
from harness.task import TaskModules
from harness.window import Answer, Frame, Prepared, Window, parse_where
from tests.fakes import make_failure, make_shape

EXPECTED = torch.tensor([2.0, 4.0])
MODULES = TaskModules(lambda **sizes: None, lambda data: EXPECTED)


def prepared() -> Prepared:
    spec = spec_of(EXPECTED)
    frame = Frame({"tuple": [{"tensor": 0}]}, (spec,), {"tensor": 0}, (spec,), ())
    return Prepared(frame, None, (EXPECTED / 2,), (EXPECTED,), None, None, None)


def examined(
    outputs: Sequence[torch.Tensor],
    *,
    changed: tuple[int, ...] = (),
    intact: bool = True,
    late: bool = False,
) -> Passed | Failed:
    answer = Answer(tuple(outputs), changed, intact)
    window = Window(1000, 1, 1, answer, tripped=False, late=late)
    return verdicts.examine(window, prepared(), Tolerance(1e-6, 0.0), MODULES)


def test_a_right_answer_passes() -> None:
    assert isinstance(examined([EXPECTED]), Passed)


def test_an_output_that_changes_after_done_is_tampered_even_if_right() -> None:
    found = examined([EXPECTED], late=True)
    assert isinstance(found, Failed) and found.verdict is Verdict.TAMPERED


def test_changed_inputs_and_broken_bands_fail_a_right_answer() -> None:
    changed, broken = examined([EXPECTED], changed=(0,)), examined([EXPECTED], intact=False)
    assert isinstance(changed, Failed) and changed.verdict is Verdict.INPUT_MODIFIED
    assert isinstance(broken, Failed) and broken.verdict is Verdict.WRONG_ANSWER


def test_seeds_are_drawn_from_a_key_of_their_own_and_can_be_drawn_again() -> None:
    first, second = Seeds(), Seeds()
    assert first.key != second.key and len(bytes.fromhex(first.key)) == 16
    drawn = [first.draw() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert all(0 <= seed < 2**63 for seed in drawn)
    assert not set(drawn) & {second.draw() for _ in range(1000)}
    again = Seeds(bytes.fromhex(first.key))
    assert again.stream("a").draw() == first.stream("a").draw()  # whatever was drawn before
    assert len({s.stream(n).draw() for s in (first, second) for n in ("a", "b")}) == 4
    assert [again.draw() for _ in range(1000)] == drawn
    steps = {b - a for a, b in zip(drawn, drawn[1:], strict=False)}
    assert len(steps) == 999, "no progression"


def test_poison_is_never_a_number_and_never_the_same() -> None:
    patterns = set()
    for _ in range(20):
        payload = torch.zeros(4 * 5000 + 2, dtype=torch.uint8)
        poison(payload)
        assert payload[:20000].view(torch.float32).isnan().all()
        assert payload[:20000].view(torch.float16).isnan().all()
        assert payload[:20000].view(torch.bfloat16).isnan().all()
        patterns.add(bytes(payload[:2].tolist()))
    assert len(patterns) > 1


@pytest.mark.parametrize(
    "where", [[], ["output:1"], ["input:0"], ["output:0", "output:0"], ["output:-1"], ["output:00"]]
)
def test_an_answer_lies_only_where_answers_may(where: list[str]) -> None:
    assert parse_where(where, prepared().frame) is None
    assert parse_where(["output:0"], prepared().frame) == [("output", 0)]


class Silent:
    """A worker's process of which nothing is asked."""

    def breach(self) -> str | None:
        return None

    def poll(self) -> str | None:
        return None

    def kill(self) -> None:
        pass


@pytest.mark.parametrize("verdict", [v.value for v in Verdict] + ["", "PASSED", "passed ", "won"])
def test_a_worker_cannot_give_itself_a_good_verdict_or_a_grave_one(verdict: str) -> None:
    ours, theirs = wire.channel_pair()
    session = Session(Silent(), ours, 2**62)  # type: ignore[arg-type]
    with theirs:
        seq = session.send("call")
        channel = wire.Channel(theirs)
        channel.send("fault", seq=seq, verdict=verdict, message="m", detail="d")
        found = session.expect("done", seq, 1_000_000_000, what="call")
    session.close()
    assert isinstance(found, Failed)
    protected = {"passed", "wrong_answer", "nonfinite", "tampered", "implausible", "input_modified"}
    if verdict in protected or verdict not in list(Verdict):
        assert found.verdict is Verdict.PROTOCOL_ERROR


@pytest.mark.parametrize(("host_ns", "believed"), [(0, True), (10**15, False)])
def test_a_worker_cannot_have_spent_more_time_in_a_call_than_passed(
    host_ns: int, believed: bool
) -> None:
    """Its run would be stored, and a bundle with it refused by everybody."""
    ours, theirs = wire.channel_pair()
    session = Session(Silent(), ours, 2**62)  # type: ignore[arg-type]
    with theirs:
        seq = session.send("call")
        done: dict[str, Any] = {"claimed_ns": 1, "where": ["output:0"], "facts": []}
        wire.Channel(theirs).send("done", seq=seq, host_ns=host_ns, **done)
        found = session.expect("done", seq, 1_000_000_000, what="call")
    session.close()
    assert isinstance(found, Failed) is not believed
    if isinstance(found, Failed):
        assert found.verdict is Verdict.TAMPERED


class Ended(Silent):
    """A worker that the kernel has ended."""

    def __init__(self, how: str) -> None:
        self._how = how

    def poll(self) -> str | None:
        return self._how


@pytest.mark.parametrize(
    ("how", "kills", "verdict"),
    [
        ("signal SIGKILL", 1, Verdict.OUT_OF_MEMORY),
        ("signal SIGKILL", 0, Verdict.CRASHED),
        ("signal SIGSEGV", 1, Verdict.CRASHED),
    ],
)
def test_a_worker_that_went_when_the_machine_had_no_memory_is_not_said_to_have_crashed(
    how: str, kills: int, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [3]
    monkeypatch.setattr("harness.tree.oom_kills", lambda: counts[0])
    ours, theirs = wire.channel_pair()
    ended: Any = Ended(how)
    session = Session(ended, ours, 2**62)
    theirs.close()
    counts[0] += kills
    found = session.expect("done", 1, 1_000_000_000, what="call")
    session.close()
    assert isinstance(found, Failed) and found.verdict is verdict
    assert ("the machine ran out of memory" in found.message) is (kills > 0 and "KILL" in how)


def test_a_judge_that_waits_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """pool.SILENCE_NS is shorter than what a task may allow one call."""
    monkeypatch.setattr("harness.session._STILL_NS", 300_000_000)
    said: list[int] = []
    ours, theirs = wire.channel_pair()
    silent: Any = Silent()
    session = Session(silent, ours, 2**62, lambda: said.append(1))
    with theirs:
        seq = session.send("call")
        found = session.expect("done", seq, 1_200_000_000, what="call")
    session.close()
    assert isinstance(found, Failed) and found.verdict is Verdict.TIMED_OUT
    assert 1 <= len(said) <= 4


@pytest.mark.parametrize("seq", [0, 1, 3, 99])
def test_a_reply_to_another_order_is_a_protocol_error(seq: int) -> None:
    ours, theirs = wire.channel_pair()
    session = Session(Silent(), ours, 2**62)  # type: ignore[arg-type]
    with theirs:
        session.send("map")
        expected = session.send("idle")
        wire.Channel(theirs).send("ready", seq=seq)
        found = session.expect("ready", expected, 1_000_000_000, what="idle")
    session.close()
    assert isinstance(found, Failed) and found.verdict is Verdict.PROTOCOL_ERROR


def test_two_texts_never_share_a_compile_cache() -> None:
    keys = {cache_key(a, b) for a in ("x", "xy", "") for b in ("y", "", "xy")}
    assert len(keys) == 9
    assert math.log2(16) * len(cache_key("x")) >= 128


def test_a_runs_line_counts_apart_what_failed_and_what_nobody_reached() -> None:
    shapes = [make_shape(number, 16, 1) for number in range(1, 5)]
    hung = [make_failure(shape, Verdict.TIMED_OUT, RUN_TOO_LONG) for shape in shapes]
    verdict, said = verdicts.overall(hung, None)
    assert verdict is Verdict.TIMED_OUT
    assert said.startswith("1 of 4 cases failed, 3 were not reached; 1x16x1 (")
    wrong = [make_failure(shape, Verdict.WRONG_ANSWER, "no") for shape in shapes]
    assert verdicts.overall(wrong, None)[1].startswith("4 of 4 cases failed; 1x16x1 (")
    assert "cases failed" not in verdicts.overall(wrong[:1], None)[1]
