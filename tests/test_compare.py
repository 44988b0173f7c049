"""Comparisons and confirmations: order of the runs, what drift and noise do, what is stored."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from harness import bundle, confirm, interrupts, leaderboard, pool, samples
from harness.cli import run as run_cli
from harness.commands import compare as compare_command
from harness.commands import confirming
from harness.compare import Result, evaluate, measure
from harness.model import Clock, Doubt, Job, Mode, Passed, Run, Stop, Verdict
from harness.render.comparison import comparison_view, document
from harness.render.console import make_console
from harness.render.text import marks
from harness.stats import Change
from harness.store import open_store
from harness.task import load
from tests.fakes import CPU, make_run
from tests.sampled import sampled_run

DOUBLE = Path(__file__).parent / "problems" / "double"
TIMES = (20.0, 40.0, 10.0)


def quartet(log_times: list[float], ratio: float = 1.0) -> list[Run]:
    """Runs A B B A whose times are exp of the given figures; A takes `ratio` of what B takes."""
    return [
        make_run(side, times_us=[t * math.exp(x) * (ratio if side == "A" else 1) for t in TIMES])
        for side, x in zip("ABBA", log_times, strict=True)
    ]


def test_runs_are_made_in_the_order_a_b_b_a() -> None:
    order = []

    def judge(side: str, number: int) -> Run:
        order.append((side, number))
        return make_run(side)

    quartets, failed = measure(judge, 2)
    assert "".join(side for side, _ in order) == "ABBAABBA"
    assert [number for _, number in order] == list(range(8))
    assert failed is None and [len(q) for q in quartets] == [4, 4]


def test_the_first_run_that_does_not_pass_ends_it() -> None:
    made = []

    def judge(side: str, number: int) -> Run:
        made.append(side)
        verdict = Verdict.WRONG_ANSWER if number == 5 else Verdict.PASSED
        return make_run(side, verdict=verdict)

    quartets, failed = measure(judge, 3)
    assert made == list("ABBAAB") and len(quartets) == 1
    assert failed is not None and failed.submission.name == "B"


def test_a_steady_drift_cancels() -> None:
    drifting = [quartet([0.02 * (4 * i + j) for j in range(4)], ratio=0.9) for i in range(3)]
    result = evaluate(drifting)
    assert result.overall.ratio == pytest.approx(0.9) and result.overall.outcome is Change.FASTER
    assert all(s.change.ratio == pytest.approx(0.9) for s in result.shapes)
    # A against A saw the drift, and the machine is told to be unsteady.
    assert result.floor.ratio == pytest.approx(math.exp(0.06)) and not result.reliable


def simulated(rng: random.Random, ratio: float, repeats: int = 4) -> Result:
    return evaluate(
        [quartet([rng.gauss(0, 0.004) for _ in range(4)], ratio) for _ in range(repeats)]
    )


def test_equals_are_rarely_told_apart_and_three_percent_nearly_always() -> None:
    rng = random.Random(5)
    equal = [simulated(rng, 1.0).overall.outcome for _ in range(200)]
    faster = [simulated(rng, 0.97).overall.outcome for _ in range(200)]
    assert sum(o is not Change.INDISTINGUISHABLE for o in equal) <= 10
    assert sum(o is Change.FASTER for o in faster) >= 190


def test_what_a_differs_from_itself_by_is_no_difference() -> None:
    runs = [quartet([0.0, 0.0, 0.0, 0.03 + 0.001 * i], ratio=0.99) for i in range(4)]
    result = evaluate(runs)
    assert result.min_effect == pytest.approx(math.expm1(0.0315), rel=0.01)
    assert result.overall.outcome is Change.INDISTINGUISHABLE


def test_shapes_are_judged_together_so_that_one_of_many_is_not_called_by_luck() -> None:
    rng = random.Random(3)
    called = 0
    for _ in range(100):
        result = simulated(rng, 1.0)
        called += any(s.change.outcome is not Change.INDISTINGUISHABLE for s in result.shapes)
    assert called <= 6


def test_a_run_without_the_time_of_a_shape_is_an_error() -> None:
    runs = quartet([0, 0, 0, 0])
    runs[2] = make_run("B", times_us=TIMES[:2])
    with pytest.raises(ValueError, match="no time for"):
        evaluate([runs, quartet([0, 0, 0, 0])])


def shown(result: Result, width: int, tmp_path: Path) -> str:
    with (tmp_path / "out").open("w+", encoding="utf-8") as stream:
        make_console(stream, {}, width=width).print(comparison_view(result, marks("utf-8")))
        stream.seek(0)
        return stream.read()


@pytest.mark.parametrize("width", [60, 100])
def test_the_screen_names_both_the_interval_the_floor_and_one_of_three_outcomes(
    width: int, tmp_path: Path
) -> None:
    steady = [
        quartet([0.001, 0, 0.0005, 0.0004], ratio=0.9),
        quartet([0, 0, 0.001, 0], ratio=0.9),
        quartet([0, 0, 0, 0], ratio=0.9),
    ]
    said = shown(evaluate(steady), width, tmp_path)
    assert "A is A, B is B" in said and "A takes" in said and "less time than B" in said
    assert "A against itself" in said and "0.50%" in said
    said = shown(evaluate([quartet([0, 0, 0, 0])] * 2), width, tmp_path)
    assert "too close to call" in said and "--repeats" in said
    assert max(map(len, said.splitlines())) <= width


def test_too_close_to_call_says_of_whom_and_how_far_either_way(tmp_path: Path) -> None:
    either = evaluate([quartet([x, 0, 0, x]) for x in (0.01, 0.0, -0.01)])
    said = shown(either, 200, tmp_path)
    assert "A and B are too close to call: A takes between 2.45% less and 2.52% more time" in said
    assert "nothing below" not in said  # by far more than half a percent is not seen either
    tiny = evaluate([quartet([0.003, 0, 0, 0.003])] * 3)
    assert "A takes between 0.30% and 0.30% more time" in shown(tiny, 200, tmp_path)
    tiny = evaluate([quartet([-0.003, 0, 0, -0.003])] * 3)
    assert "A takes between 0.30% and 0.30% less time" in shown(tiny, 200, tmp_path)


def _hurried(run: Run) -> Run:
    """The run, its last case cut short by its budget."""
    *others, last = run.cases
    assert isinstance(last.outcome, Passed) and last.outcome.timing is not None
    timing = dataclasses.replace(last.outcome.timing, stop=Stop.BUDGET)
    outcome = dataclasses.replace(last.outcome, timing=timing)
    return dataclasses.replace(run, cases=(*others, dataclasses.replace(last, outcome=outcome)))


def test_who_ended_the_sampling_early_is_told_of_the_budget_too(tmp_path: Path) -> None:
    runs = [quartet([x, 0, 0, x]) for x in (0.01, 0.0, -0.01)]
    assert "--budget" not in shown(evaluate(runs), 200, tmp_path)
    runs[1][2] = _hurried(runs[1][2])
    assert "more --repeats and a larger --budget see" in shown(evaluate(runs), 200, tmp_path)


def test_the_document_is_strict_json_with_full_precision() -> None:
    result = evaluate([quartet([0.001, 0, 0, 0], ratio=0.9), quartet([0, 0.002, 0, 0], ratio=0.9)])
    made = json.loads(json.dumps(document(result), allow_nan=False))["comparison"]
    assert made["overall"]["ratio"] == result.overall.ratio
    assert made["overall"]["outcome"] in {change.value for change in Change}
    assert len(made["shapes"]) == 3 and made["shapes"][0]["shape"]["m"] == 7168


# Confirmations


def rounds(clock: Clock = Clock.HOST) -> list[Run]:
    return [
        sampled_run("k", id=f"r{i}", seed=i, created=i, clock=clock,
                    mode=Mode.RANKED if i == 0 else Mode.BENCHMARK)
        for i in range(3)
    ]  # fmt: skip


@pytest.mark.parametrize("clock", [Clock.HOST, Clock.WORKER])
def test_rounds_become_one_ranked_run_whose_figures_follow_from_all_samples(clock: Clock) -> None:
    runs = rounds(clock)
    made = confirm.merged(runs)
    assert leaderboard.ineligible(made) is None
    assert made.mode is Mode.RANKED and made.created_ns == runs[-1].created_ns
    assert made.id not in {run.id for run in runs}
    assert bundle.problems(made) == ()
    for i, case in enumerate(c for c in made.cases if c.timing is not None):
        assert case.timing is not None
        parts = [c.timing for run in runs for c in run.cases if c.timing is not None][i::3]
        assert case.timing.processes == 15 and case.timing.samples == 180
        expected = [m for part in parts for m in part.process_medians_ns]
        assert case.timing.process_medians_ns == pytest.approx(expected)
        assert case.timing.median_ns == pytest.approx(samples.centre_of(expected))
    assert any("3 interleaved rounds" in note for note in made.notes)


def test_a_round_that_fails_is_what_stands_in_the_record() -> None:
    runs = rounds()
    runs[1] = dataclasses.replace(runs[1], verdict=Verdict.CRASHED, message="signal 11")
    made = confirm.merged(runs[:2])
    assert made.verdict is Verdict.CRASHED and leaderboard.ineligible(made) == "crashed"


def test_doubts_about_times_are_found_anew_and_others_are_kept() -> None:
    runs = [
        dataclasses.replace(run, doubts=(Doubt.FEW_SAMPLES, Doubt.HOST_BOUND)) for run in rounds()
    ]
    assert confirm.merged(runs).doubts == (Doubt.HOST_BOUND,)


def test_entries_are_measured_forwards_backwards_forwards_and_not_again_after_a_failure() -> None:
    calls: list[tuple[int, Mode]] = []

    def judge(entry: int, mode: Mode) -> Run:
        calls.append((entry, mode))
        failed = entry == 1 and mode is Mode.BENCHMARK
        return sampled_run(
            f"k{entry}", id=f"c{len(calls)}", seed=len(calls), mode=mode,
            verdict=Verdict.TAMPERED if failed else Verdict.PASSED,
        )  # fmt: skip

    made = dict(confirm.measure(judge, 3))
    assert list(made) == [1, 0, 2]  # each is there as soon as nothing more is made of it
    assert [entry for entry, _ in calls] == [0, 1, 2, 2, 1, 0, 0, 2]
    assert [mode for _, mode in calls[:3]] == [Mode.RANKED] * 3
    assert [made[i].verdict for i in range(3)] == [
        Verdict.PASSED, Verdict.TAMPERED, Verdict.PASSED,
    ]  # fmt: skip


# Commands, with a fake judge


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three entries on this machine's board of the tiny task; the luckiest leads."""
    task = load(DOUBLE)
    monkeypatch.chdir(DOUBLE)
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with open_store(url, create=True) as store:
        for i, name in enumerate(("lucky", "second", "third")):
            run = sampled_run(name, id=name, created=i, device=CPU, floor=None, seed=i,
                              times_us=(20.0 + i, 40.0 + i), shapes=task.ranked,
                              task=task.name, digest=task.digest)  # fmt: skip
            store.add(run)
    return url


def test_confirm_replaces_what_luck_selected_by_fresh_runs(
    board: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged: list[Job] = []

    def judge(job: Job, label: str, *, quiet: bool, brief: bool = False) -> Run:
        judged.append(job)
        slow = 30.0 if job.submission.name == "lucky" else 21.0
        with open_store(board, create=False) as store:
            old = store.get(job.submission.name)
        shapes = tuple(c.case.shape for c in old.cases if c.timing is not None)
        return sampled_run(
            job.submission.name, id=f"n{len(judged)}", created=1000 + len(judged), device=CPU,
            seed=len(judged), times_us=(slow, 2 * slow), floor=None, mode=job.mode,
            task=old.task, digest=old.task_digest, shapes=shapes,
        )  # fmt: skip

    monkeypatch.setattr(confirming, "judge", judge)
    assert run_cli(["leaderboard", "--db", board, "--confirm", "2", "--json"]) == 0
    out = capsys.readouterr()
    (found,) = json.loads(out.out)["boards"]
    assert [s["submission"] for s in found["standings"]] == ["second", "third", "lucky"]
    assert [s["run"] for s in found["standings"]][1] == "third"  # not confirmed: as it was
    assert {job.submission.name for job in judged} == {"lucky", "second"} and len(judged) == 6
    assert all(job.processes == 1 and job.seed is None for job in judged)
    assert "lucky: " in out.err and "confirmed" in out.err


@pytest.mark.parametrize("machine", [False, True])
def test_confirm_that_fails_takes_the_standing_unless_the_machine_may_be_to_blame(
    machine: bool, board: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judge(job: Job, label: str, *, quiet: bool, brief: bool = False) -> Run:
        failed = sampled_run(
            job.submission.name, id="new", created=99, device=CPU, verdict=Verdict.IMPORT_ERROR,
            message="no", doubts=[Doubt.ROOT_WORKER] if machine else [],
        )  # fmt: skip
        task = load(DOUBLE)
        return dataclasses.replace(
            failed, task=task.name, task_digest=task.digest, submission=job.submission
        )

    monkeypatch.setattr(confirming, "judge", judge)
    assert run_cli(["leaderboard", "--db", board, "--confirm", "1", "--json"]) == 1
    out = capsys.readouterr()
    standings = [s["run"] for s in json.loads(out.out)["boards"][0]["standings"]]
    assert standings == (["lucky", "second", "third"] if machine else ["second", "third"])
    told = "its earlier run stands\n" if machine else "its earlier run has no standing any more\n"
    assert f"lucky: import_error: no; {told}" in out.err


def test_a_board_that_was_just_confirmed_does_not_ask_for_that_again(
    board: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(board, create=True) as store:
        unsure = dataclasses.replace(store.get("lucky"), id="new", doubts=(Doubt.FEW_SAMPLES,))
        store.add(dataclasses.replace(unsure, created_ns=unsure.created_ns + 10**10))
    monkeypatch.setattr(confirming, "confirm", lambda *_: True)
    assert run_cli(["leaderboard", "--db", board]) == 0
    assert "To be sure, `harness leaderboard --confirm 2`" in capsys.readouterr().out
    assert run_cli(["leaderboard", "--db", board, "--confirm", "2"]) == 0
    assert "To be sure" not in capsys.readouterr().out


def _judged(job: Job, number: int) -> Run:
    """What a judge makes of a confirmation's job, the `number`th."""
    return sampled_run(
        job.submission.name, id=f"n{number}", created=1000, device=CPU, mode=job.mode,
        seed=number, times_us=(20.0, 40.0), floor=None, shapes=load(DOUBLE).ranked,
    )  # fmt: skip


def test_an_interrupted_confirmation_keeps_the_entries_that_it_was_done_with(
    board: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []

    def judge(job: Job, label: str, *, quiet: bool, brief: bool = False) -> Run:
        if len(judged) == 5:  # the first entry had its third round, the second has not
            raise KeyboardInterrupt
        judged.append(job.submission.name)
        return _judged(job, len(judged))

    monkeypatch.setattr(confirming, "judge", judge)
    assert run_cli(["leaderboard", "--db", board, "--confirm", "2"]) == 130
    assert judged == ["lucky", "second", "second", "lucky", "lucky"]
    with open_store(board, create=False) as store:
        assert [run.submission for run in store.runs()] == ["lucky", "third", "second", "lucky"]


def test_an_entry_that_a_signal_meets_as_its_last_judge_ends_is_confirmed(
    board: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged: list[str] = []
    # Unmended it must fail, not end pytest.
    old = signal.signal(signal.SIGTERM, lambda *_: None)

    def run_job(job: Job, report: Any) -> Run:
        judged.append(job.submission.name)
        interrupts.in_hand()  # as pool has it, which ends the judge then
        if len(judged) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return _judged(job, len(judged))

    monkeypatch.setattr(pool, "run_job", run_job)
    assert run_cli(["leaderboard", "--db", board, "--confirm", "2"]) == 130
    signal.signal(signal.SIGTERM, old)
    assert judged == ["lucky", "second", "second", "lucky", "lucky"]
    assert "lucky: " in capsys.readouterr().err
    with open_store(board, create=False) as store:
        assert [run.submission for run in store.runs()] == ["lucky", "third", "second", "lucky"]


def test_confirm_on_another_machine_stores_nothing(
    board: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(confirming, "judge", lambda job, label, **how: sampled_run(id="new"))
    assert run_cli(["leaderboard", "--db", board, "--confirm", "1"]) == 2
    assert "this machine has NVIDIA H200" in capsys.readouterr().err
    with open_store(board, create=False) as store:
        assert len(store.runs()) == 3


def test_compare_takes_files_and_runs_and_says_who_failed(
    board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def custom_kernel(data): ...\n")
    jobs: list[Job] = []
    rng = random.Random(1)

    def judge(job: Job, label: str, *, quiet: bool, brief: bool = False) -> Run:
        jobs.append(job)
        scale = (0.9 if job.submission.name == "mine" else 1.0) * math.exp(rng.gauss(0, 1e-3))
        return make_run(job.submission.name, times_us=[t * scale for t in TIMES], device=CPU)

    monkeypatch.setattr(compare_command, "judge", judge)
    argv = ["compare", str(file), "lucky", "--db", board, "--json", "--repeats", "3"]
    assert run_cli(argv) == 0
    out = capsys.readouterr()
    assert out.err == "B: lucky as stored with run lucky\n"
    made = json.loads(out.out)["comparison"]
    assert made["overall"]["outcome"] == "faster" and made["quartets"] == 3
    assert all(job.mode is Mode.BENCHMARK and job.processes == 1 for job in jobs)
    assert [job.submission.name for job in jobs[:4]] == ["mine", "lucky", "lucky", "mine"]

    def fails_for_b(job: Job, label: str, **how: bool) -> Run:
        verdict = Verdict.CRASHED if label.startswith("B") else Verdict.PASSED
        return make_run("same", verdict=verdict, message="signal 11")

    monkeypatch.setattr(compare_command, "judge", fails_for_b)
    assert run_cli([*argv, "--quiet"]) == 1
    assert capsys.readouterr().err == "B, same, did not pass: crashed: signal 11\n"
    assert run_cli(["compare", str(file), "nobody.py", "--db", board]) == 2
    assert run_cli(["compare", str(file), "zzz", "--db", board]) == 2
    assert run_cli(["compare", str(file), str(file), "--repeats", "2"]) == 2


def test_confirm_and_compare_refuse_a_run_without_its_source(
    board: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(confirming, "judge", lambda *_, **__: pytest.fail("it was judged"))
    monkeypatch.setattr(compare_command, "judge", lambda *_, **__: pytest.fail("it was judged"))
    with open_store(board, create=True) as store:
        run = store.get("lucky")
        bare = dataclasses.replace(run.submission, source="", name="bare")
        store.add(dataclasses.replace(run, id="bare", submission=bare))
        count = len(store.runs())
    assert run_cli(["leaderboard", "--db", board, "--confirm", "4"]) == 2
    assert run_cli(["compare", "bare", "lucky", "--db", board]) == 2
    assert capsys.readouterr().err.count("its source was left out of the bundle") == 2
    with open_store(board, create=False) as store:
        assert len(store.runs()) == count


def test_what_a_submission_says_cannot_command_a_terminal(
    board: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = sampled_run(verdict=Verdict.RUNTIME_ERROR, message="\x1b]0;pwn\x07 \u202eevil")
    monkeypatch.setattr(compare_command, "judge", lambda *_, **__: bad)
    assert run_cli(["compare", "lucky", "second", "--db", board]) == 1
    assert "did not pass: runtime_error: \\x1b]0;pwn\\x07 \\u202eevil" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spent_s", "done", "said"),
    [(0, 0, ""), (10, 1, ", 110 s left"), (60, 2, ", 5 min left"), (1, 11, ", 0 s left")],
)
def test_a_comparison_says_how_long_the_rest_takes(spent_s: int, done: int, said: str) -> None:
    assert compare_command._left(spent_s * 10**9, done, 12) == said
