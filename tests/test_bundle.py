"""Bundles: what goes in comes out, whatever was changed is found, what was made is made again."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import bundle, codec, planned, samples, stats, timing
from harness.cli import run as run_cli
from harness.commands import replay
from harness.errors import UsageError
from harness.model import (
    Block,
    CaseKind,
    CaseResult,
    Check,
    Clock,
    Doubt,
    Job,
    Mode,
    Passed,
    Run,
    Stop,
    Timing,
    Tolerance,
    Verdict,
    Worst,
)
from harness.prepare import Seeds
from harness.sources import submission_of
from harness.store import open_store
from harness.task import load
from tests.fakes import CPU, H200, SHAPES, make_failure, make_shape
from tests.sampled import SECRET, sampled_run, sampled_timing

DOUBLE = Path(__file__).parent / "problems" / "double"
needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")


def some_runs() -> list[Run]:
    return [
        sampled_run("quick", id="aa1000000000", seed=1),
        sampled_run("gpu", id="bb2000000000", seed=2, clock=Clock.WORKER, times_us=(22, 43, 11)),
        sampled_run("failed", id="cc3000000000", verdict=Verdict.WRONG_ANSWER, message="7 of 7168",
                    seed=3, failures=[make_failure(SHAPES[0], Verdict.WRONG_ANSWER, "7 of 7168")]),
    ]  # fmt: skip


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with three runs; the current folder is outside of any task."""
    monkeypatch.chdir(tmp_path)
    where = f"sqlite:///{tmp_path / 'here.db'}"
    with open_store(where, create=True) as store:
        for run in some_runs():
            store.add(run)
    return where


def exported(url: str, file: Path, *options: str) -> dict[str, Any]:
    assert run_cli(["export", str(file), "--db", url, *options]) == 0
    document: dict[str, Any] = json.loads(file.read_bytes())
    return document


# Bytes


def test_runs_survive_the_trip_with_every_sample_and_the_digest_holds() -> None:
    made = bundle.make(some_runs(), with_source=True)
    again = bundle.loads(bundle.dumps(made), "x")
    assert again == made and list(again.runs) == some_runs()


def test_the_digest_survives_other_spacing_and_order_of_keys() -> None:
    made = bundle.make(some_runs(), with_source=True)
    document = json.loads(bundle.dumps(made))
    spelled = json.dumps(dict(reversed(document.items())), indent=3).encode()
    assert bundle.loads(spelled, "x").digest == made.digest


def test_without_source_the_hash_stays_and_the_text_goes() -> None:
    made = bundle.make([sampled_run(source="SECRET = 1\n")], with_source=False)
    assert b"SECRET = 1" not in bundle.dumps(made)
    assert made.runs[0].submission.sha256 == sampled_run(source="SECRET = 1\n").submission.sha256
    assert bundle.problems(made.runs[0]) == ()


def test_any_single_changed_value_breaks_the_digest() -> None:
    data = bundle.dumps(bundle.make(some_runs(), with_source=True)).decode()
    for old, new in (
        ("aa1000000000", "aa9000000000"),
        ('"ada"', '"eve"'),
        ('"passed"', '"crashed"'),
        (SECRET, "0"),
    ):
        changed = data.replace(old, new, 1)
        assert changed != data
        with pytest.raises(UsageError, match="digest does not fit|damaged"):
            bundle.loads(changed.encode(), "x")


def resealed(document: dict[str, Any]) -> bytes:
    """The digest anew, as whoever changes a bundle on purpose would make it."""
    content = {k: v for k, v in document.items() if k not in ("digest", "signature")}
    return json.dumps({**document, "digest": bundle._digest(content)}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"format": "zip"}',
        b'{"format": "kernel-harness bundle", "schema": 1, "harness": NaN}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_bundle_is_a_usage_error_that_names_the_file(data: bytes) -> None:
    with pytest.raises(UsageError, match="some.json"):
        bundle.loads(data, "some.json")


def test_a_newer_schema_a_missing_field_and_a_run_twice_are_refused() -> None:
    document = json.loads(bundle.dumps(bundle.make(some_runs(), with_source=True)))
    newer = {**document, "schema": 2}
    with pytest.raises(UsageError, match="schema 2"):
        bundle.loads(resealed(newer), "x")
    named = {**document["runs"][0], "id": "torch_dequant"}  # would be found by that name
    broken: list[Any] = [[{}], [document["runs"][0]] * 2, "none", [None], [named]]
    for runs in broken:
        with pytest.raises(UsageError, match="damaged"):
            bundle.loads(resealed({**document, "runs": runs}), "x")


# Arithmetic


@pytest.mark.parametrize("floor_ns", [-5.0, -math.inf, math.nan, 0.0])
def test_a_floor_that_is_no_time_is_none(floor_ns: float) -> None:
    made = with_timing(
        sampled_run(clock=Clock.WORKER), lambda t: dataclasses.replace(t, floor_ns=floor_ns)
    )
    assert any("its floor is no time" in problem for problem in bundle.problems(made))


@pytest.mark.parametrize(("clock", "least_us"), [(Clock.HOST, 5.0), (Clock.WORKER, 0.5)])
def test_no_call_is_shorter_than_one_that_does_nothing(clock: Clock, least_us: float) -> None:
    for share, said in ((0.9, 3), (1.1, 0)):
        made = sampled_run(clock=clock, times_us=(share * least_us,) * 3)
        assert sum("that does nothing" in p for p in bundle.problems(made)) == said


def with_timing(run: Run, change: Callable[[Timing], Timing]) -> Run:
    """The run with its last shape's timing changed."""
    *cases, last = run.cases
    assert last.timing is not None
    assert isinstance(last.outcome, Passed)
    outcome = dataclasses.replace(last.outcome, timing=change(last.timing))
    return dataclasses.replace(run, cases=(*cases, dataclasses.replace(last, outcome=outcome)))


def scaled(factor: float) -> Callable[[Timing], Timing]:
    return lambda t: dataclasses.replace(
        t, **{n: getattr(t, n) * factor for n in ("median_ns", "low_ns", "high_ns")}
    )


def with_medians(timing: Timing, medians_ns: tuple[float, ...]) -> Timing:
    """A time that follows from these medians."""
    factor = samples.centre_of(medians_ns) / timing.median_ns
    return scaled(factor)(dataclasses.replace(timing, process_medians_ns=medians_ns))


FORGED: dict[str, Callable[[Run], Run]] = {
    "is not the geometric mean": lambda r: dataclasses.replace(r, score_ns=r.score_ns * 0.99),  # type: ignore[operator]
    "not the centre of its processes": lambda r: with_timing(r, scaled(0.99)),
    "narrower than its samples": lambda r: with_timing(
        r, lambda t: dataclasses.replace(t, low_ns=t.median_ns * 0.9999, high_ns=t.median_ns)
    ),
    "its interval is none": lambda r: with_timing(
        r, lambda t: dataclasses.replace(t, low_ns=t.high_ns, high_ns=t.low_ns)
    ),
    "do not belong together": lambda r: with_timing(
        r, lambda t: dataclasses.replace(t, blocks=t.blocks[:-1])
    ),
    "does not follow from its samples": lambda r: with_timing(
        r,
        lambda t: with_medians(t, (t.process_medians_ns[0] - 6000.0, *t.process_medians_ns[1:])),
    ),
    "faster than its device's floor": lambda r: with_timing(
        r, lambda t: dataclasses.replace(t, floor_ns=t.median_ns * 1.1)
    ),
    "not the one that its sha256 names": lambda r: dataclasses.replace(
        r, submission=dataclasses.replace(r.submission, source="import cheat\n")
    ),
    "cases failed": lambda r: dataclasses.replace(
        r, cases=(*r.cases, make_failure(SHAPES[0], Verdict.CRASHED, "x"))
    ),
    "reveals no secret seed": lambda r: dataclasses.replace(r, secret_seed="0" * 33),
    "its blocks lack samples": lambda r: with_timing(
        r,
        lambda t: dataclasses.replace(
            t, blocks=tuple(dataclasses.replace(b, window_ns=()) for b in t.blocks)
        ),
    ),
    "may have none": lambda r: dataclasses.replace(r, custom_shapes=True),
    "timed twice": lambda r: dataclasses.replace(r, cases=(*r.cases, r.cases[-1])),
    "longer than the whole run": lambda r: dataclasses.replace(r, duration_ns=1000),
    "its samples say noisy, and it does not": lambda r: noisy(r, doubts=()),
    "its check does not say so": lambda r: checked(r, mismatches=5),
    "it passed, but its check": lambda r: checked(r, elements=0),
    "passed, but its check does not": lambda r: checked(r, max_abs=math.nan),
    "but its check does not say": lambda r: checked(r, strict_mismatches=10**9),
    "say reduced precision": lambda r: checked(r, strict_mismatches=1),
    "its device and its clock": lambda r: dataclasses.replace(
        r, device=dataclasses.replace(r.device, kind="abacus")
    ),
    "it has a score": lambda r: dataclasses.replace(r, mode=Mode.TEST),
    "wider than its samples": lambda r: with_timing(
        r, lambda t: dataclasses.replace(t, low_ns=t.low_ns / 9, high_ns=t.high_ns * 9)
    ),
    "that no clock reads": lambda r: with_timing(
        r, lambda t: dataclasses.replace(t, blocks=(*t.blocks, Block(0, 0, (1,), (1,))))
    ),
    "times that no clock": lambda r: with_timing(
        r,
        lambda t: dataclasses.replace(
            t,
            blocks=tuple(
                dataclasses.replace(b, host_ns=(-5,) * len(b.window_ns)) for b in t.blocks
            ),
        ),
    ),
    "its mean, deviation, extremes": lambda r: with_timing(
        r, lambda t: dataclasses.replace(t, host_median_ns=1.0)
    ),
    "as precise as its stop says": lambda r: with_timing(
        noisy(r, (Doubt.NOISY,)), lambda t: dataclasses.replace(t, stop=Stop.PRECISION)
    ),
    "is no benchmark": lambda r: dataclasses.replace(
        r,
        cases=tuple(
            dataclasses.replace(c, case=dataclasses.replace(c.case, kind=CaseKind.BENCHMARK))
            for c in r.cases
        ),
    ),
}


def test_a_processors_time_has_nothing_that_only_a_gpu_measures() -> None:
    sound = sampled_run(clock=Clock.HOST)
    assert bundle.problems(sound) == ()
    many = Block(0, 16, (9,), (9,))
    for change in (
        lambda t: dataclasses.replace(t, floor_ns=1.0),
        lambda t: dataclasses.replace(t, judge_ns=t.median_ns),
        lambda t: dataclasses.replace(t, blocks=(*t.blocks, many)),
    ):
        found = bundle.problems(with_timing(sound, change))
        assert any("what only a GPU's has" in one for one in found), found


def test_no_call_on_a_processor_took_longer_than_the_judges_clock_ran() -> None:
    """A hundredth of each window was sound, beside calls in it as long as they had been."""
    sound = sampled_run(clock=Clock.HOST)

    def with_hosts(more_ns: int) -> Run:
        return with_timing(
            sound,
            lambda t: timing.summarise(
                [timing.Estimate(b.process, tuple(map(float, b.window_ns))) for b in t.blocks],
                [
                    dataclasses.replace(b, host_ns=tuple(ns + more_ns for ns in b.window_ns))
                    for b in t.blocks
                ],
                stop=t.stop,
            ),
        )

    assert bundle.problems(with_hosts(0)) == ()
    (problem,) = bundle.problems(with_hosts(1))
    assert "a call took longer than the judge's clock ran" in problem


def test_no_calls_took_longer_than_their_run_on_a_gpu_either() -> None:
    run = with_timing(
        sampled_run(clock=Clock.WORKER),
        lambda t: dataclasses.replace(
            t,
            host_median_ns=1e12,
            blocks=tuple(dataclasses.replace(b, host_ns=(10**12,) * 12) for b in t.blocks),
        ),
    )
    assert bundle.problems(run) == ("its samples took longer than the whole run",)


def test_a_gpus_time_without_a_floor_says_so() -> None:
    bare = sampled_run(clock=Clock.WORKER, floor=None)
    (problem,) = bundle.problems(bare)
    assert problem == "its times were held against no floor, and it does not say so"
    assert bundle.problems(dataclasses.replace(bare, doubts=(Doubt.NO_FLOOR,))) == ()
    assert bundle.problems(sampled_run(clock=Clock.HOST, floor=None)) == ()


def checked(run: Run, **changes: Any) -> Run:
    """The run with another check of its first case."""
    first, *rest = run.cases
    assert isinstance(first.outcome, Passed)
    check = dataclasses.replace(first.outcome.check, **changes)
    outcome = dataclasses.replace(first.outcome, check=check)
    return dataclasses.replace(run, cases=(dataclasses.replace(first, outcome=outcome), *rest))


def noisy(run: Run, doubts: tuple[Doubt, ...]) -> Run:
    """The run with a last time as wide as its neighbours' noise, and these doubts."""
    offset_ns = 0.0 if run.clock is Clock.HOST else 1500.0
    floor_ns = None if run.clock is Clock.HOST else 6_000.0
    wide = sampled_timing(10_000.0, seed=3, noise=0.2, offset_ns=offset_ns, floor_ns=floor_ns)
    wide = dataclasses.replace(wide, stop=Stop.SAMPLES)
    changed = with_timing(run, lambda t: wide)
    timings = [case.timing.median_ns for case in changed.cases if case.timing is not None]
    return dataclasses.replace(changed, doubts=doubts, score_ns=stats.geometric_mean(timings))


@pytest.mark.parametrize("clock", [Clock.HOST, Clock.WORKER])
def test_a_noisy_run_that_says_so_is_sound(clock: Clock) -> None:
    assert bundle.problems(noisy(sampled_run(clock=clock), (Doubt.NOISY,))) == ()


@pytest.mark.parametrize("judged_us", [0.1, 8.0, 31.0, 10_000.0])
def test_a_claim_that_the_judges_clock_refutes_is_not_sound(judged_us: float) -> None:
    """Measuring it would have been `tampered`."""
    run = sampled_run(times_us=(20.0, 40.0, 20.0), clock=Clock.WORKER)
    forged = with_timing(
        run,
        lambda t: dataclasses.replace(
            t,
            blocks=tuple(
                dataclasses.replace(b, window_ns=(round(judged_us * 1e3),) * len(b.window_ns))
                for b in t.blocks
            ),
        ),
    )
    assert any("does not follow" in said for said in bundle.problems(forged))


def waiting(timing: Timing, *, label: str, host_ns: int = 30_000) -> Timing:
    """A time of calls that wait for the host: the judge saw more than the worker's events."""
    blocks = tuple(
        dataclasses.replace(b, claimed_ns=tuple(max(1, w - host_ns) for w in b.window_ns))
        for b in timing.blocks
    )
    return dataclasses.replace(timing, blocks=blocks, classes=("synchronises", label))


def test_calls_that_wait_are_published_by_the_judges_clock_and_no_other() -> None:
    run = sampled_run(times_us=(200.0, 400.0, 100.0), clock=Clock.WORKER)
    sound = with_timing(run, lambda t: waiting(t, label="judge clock"))
    assert bundle.problems(sound) == ()
    for forged in (
        with_timing(run, lambda t: waiting(t, label="graph")),
        with_timing(sound, lambda t: with_medians(t, tuple(m / 2 for m in t.process_medians_ns))),
        with_timing(sound, lambda t: with_medians(t, tuple(m * 9 for m in t.process_medians_ns))),
        with_timing(run, lambda t: with_medians(t, tuple(m * 9 for m in t.process_medians_ns))),
    ):
        found = bundle.problems(forged)
        assert any("does not follow from its samples" in one for one in found), found


@pytest.mark.parametrize("clock", [Clock.HOST, Clock.WORKER])
def test_honest_runs_have_no_problem(clock: Clock) -> None:
    for run in some_runs():
        assert bundle.problems(dataclasses.replace(run)) == ()
    assert bundle.problems(sampled_run(seed=9, clock=clock)) == ()


@pytest.mark.parametrize("clock", [Clock.HOST, Clock.WORKER])
@pytest.mark.parametrize("said", FORGED)
def test_each_forgery_is_found(said: str, clock: Clock) -> None:
    forged = FORGED[said](sampled_run(seed=4, clock=clock))
    assert any(said in problem for problem in bundle.problems(forged)), bundle.problems(forged)


@pytest.mark.parametrize("clock", [Clock.HOST, Clock.WORKER])
@pytest.mark.parametrize(
    "invented",
    [
        {"mean_ns": 1.0},
        {"std_ns": None},
        {"std_ns": 0.0},
        {"best_ns": 10.0},
        {"worst_ns": 1e9},
        {"samples": 100_000},
        {"processes": 50},
    ],
    ids=str,
)
def test_what_is_said_beside_the_time_follows_from_the_samples_too(
    invented: dict[str, Any], clock: Clock
) -> None:
    forged = with_timing(
        sampled_run(seed=4, clock=clock), lambda t: dataclasses.replace(t, **invented)
    )
    (problem,) = bundle.problems(forged)
    assert "its mean, deviation, extremes or counts are not those of its samples" in problem


def test_a_time_that_is_no_time_is_a_problem_and_never_a_crash() -> None:
    for value in (0.0, -1.0, 1e-320, 1e300):
        run = with_timing(sampled_run(), lambda t, v=value: dataclasses.replace(t, median_ns=v))  # type: ignore[misc]
        assert bundle.problems(run)


# Commands


def test_export_takes_what_stands_or_what_is_named_or_everything(url: str, tmp_path: Path) -> None:
    def ids(document: dict[str, Any]) -> list[str]:
        return sorted(run["id"] for run in document["runs"])

    file = tmp_path / "b.json"
    assert ids(exported(url, file)) == ["aa1000000000", "bb2000000000"]
    assert ids(exported(url, file, "cc")) == ["cc3000000000"]
    assert ids(exported(url, file, "cc", "cc3000000000", "failed")) == ["cc3000000000"]
    assert ids(exported(url, file, "--all")) == ["aa1000000000", "bb2000000000", "cc3000000000"]
    assert [p.name for p in tmp_path.glob("*b.json*")] == ["b.json"]


@pytest.mark.parametrize("name", ["quick", "aa1000000000", "aa10"])
def test_export_of_a_run_alone_asks_for_the_file(
    name: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It wrote every standing into a file of the run's name."""
    assert run_cli(["export", name, "--db", url]) == 2
    assert capsys.readouterr().err == (f"harness: {name} names a run: harness export FILE {name}\n")
    assert not (tmp_path / name).exists()
    for file, *runs in ((name, name), (f"{name}.json",), (str(tmp_path / name),), ("bundle",)):
        assert run_cli(["export", file, *runs, "--db", url]) == 0


def test_export_replaces_a_bundle_and_nothing_else(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`harness export SUBMISSION.py` lost the submission, `export shapes.yaml bob` the task's."""
    for name, content in (("mine.py", "def custom_kernel(data): ...\n"), ("other.json", "{}")):
        file = tmp_path / name
        file.write_text(content)
        for runs in ((), ("quick",)):
            assert run_cli(["export", str(file), *runs, "--db", url]) == 2
            assert capsys.readouterr().err == (
                f"harness: {file}: is there already and would be overwritten; FILE is the bundle "
                "to write; names of runs come after it\n"
            )
        assert file.read_text() == content
    (tmp_path / "empty.json").touch()
    exported(url, tmp_path / "empty.json")
    document = exported(url, tmp_path / "empty.json")  # now a bundle
    (tmp_path / "indented.json").write_text(json.dumps(document, indent=2))
    exported(url, tmp_path / "indented.json")


def test_verify_says_ok_bad_and_what_could_stand(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.json"
    document = exported(url, file, "--all")
    assert run_cli(["verify", str(file)]) == 0
    said = capsys.readouterr().out
    assert said.count("could stand") == 2 and "no standing: wrong_answer" in said
    assert "not signed: nobody vouches for it" in said
    document["runs"][0]["score_ns"] *= 0.9
    file.write_bytes(resealed(document))
    assert run_cli(["verify", str(file)]) == 1
    assert "BAD" in capsys.readouterr().out
    assert run_cli(["verify", str(file), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [bool(run["problems"]) for run in found["runs"]] == [True, False, False]


def test_import_stores_sound_runs_once_with_their_origin_and_they_rank(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, there = tmp_path / "b.json", f"sqlite:///{tmp_path / 'there.db'}"
    exported(url, file)
    for expected in ("imported 2 runs", "2 were there already"):
        assert run_cli(["import", str(file), "--db", there]) == 0
        assert expected in capsys.readouterr().out
    with open_store(there, create=False) as store:
        run = store.get("aa1000000000")
        assert "imported from a bundle, sha256:" in run.notes[-1]
        assert {row.id for row in store.latest_eligible(None)} == {"aa1000000000", "bb2000000000"}
        (original,) = (r for r in some_runs() if r.id == "aa1000000000")
        assert run.doubts == (Doubt.UNSIGNED_IMPORT,)
        assert dataclasses.replace(run, notes=original.notes, doubts=()) == original


def test_what_nobody_vouches_for_says_so_on_every_board(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Imported runs stood like local ones: only `show` told where they were from."""
    file, there = tmp_path / "b.json", f"sqlite:///{tmp_path / 'there.db'}"
    exported(url, file)
    capsys.readouterr()
    assert run_cli(["import", str(file), "--db", there]) == 0
    assert (
        "the bundle is not signed: nobody vouches for it; the board says `unsigned import` of what "
        "it brought\n"
    ) in capsys.readouterr().out
    for layout, count in (("table", 1), ("json", 2), ("csv", 2), ("markdown", 2)):
        run_cli(["leaderboard", "--db", there, "--format", layout])
        assert capsys.readouterr().out.count("unsigned import") == count
    run_cli(["leaderboard", "--db", there, "--html", str(tmp_path / "board.html")])
    assert "unsigned import" in (tmp_path / "board.html").read_text()
    # Who exports it anew passes the doubt on, and it comes once.
    exported(there, file)
    again = f"sqlite:///{tmp_path / 'again.db'}"
    assert run_cli(["import", str(file), "--db", again]) == 0
    assert run_cli(["import", str(file), "--db", url]) == 0
    assert "2 were there already" in capsys.readouterr().out
    with open_store(again, create=False) as store:
        assert store.get("aa1000000000").doubts == (Doubt.UNSIGNED_IMPORT,)


@needs_ssh
def test_what_a_known_key_signed_stands_without_a_doubt(
    url: str, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = keys / "b.json"
    exported(url, file, "--sign", str(keys / "k1"))
    signers = ["--signers", str(keys / "signers")]
    for name, options, doubts in (
        ("trusted", signers, ()),
        ("anybody", [], (Doubt.UNSIGNED_IMPORT,)),
    ):
        there = f"sqlite:///{keys / name}.db"
        capsys.readouterr()
        assert run_cli(["import", str(file), "--db", there, *options]) == 0
        assert ("nobody vouches for" in capsys.readouterr().out) == bool(doubts)
        with open_store(there, create=False) as store:
            assert store.get("aa1000000000").doubts == doubts


# Runs of the task at hand


def double_run(**changes: Any) -> Run:
    """A ranked run of the double task, as its judge would have recorded it."""
    task = load(DOUBLE)
    run = sampled_run("alice", id="aa1000000000", device=CPU, times_us=(20.0, 40.0),
                      shapes=task.ranked, task=task.name, digest=task.digest, clock=Clock.HOST,
                      **changes)  # fmt: skip
    exact = Check(elements=64, mismatches=0, max_abs=0.0, max_rel=0.0, max_ulp=0.0)
    tests = (CaseResult(case, Passed(exact)) for case in (*task.tests, *task.hard))
    timed = (
        CaseResult(dataclasses.replace(c.case, inputs=task.timed_inputs), Passed(exact, c.timing))
        for c in run.cases
        if c.timing is not None
    )
    return dataclasses.replace(run, cases=(*tests, *timed))


def with_cases(run: Run, change: Callable[[CaseResult], CaseResult], kind: CaseKind) -> Run:
    cases = tuple(change(c) if c.case.kind is kind else c for c in run.cases)
    return dataclasses.replace(run, cases=cases)


def with_case(**changes: Any) -> Callable[[CaseResult], CaseResult]:
    return lambda c: dataclasses.replace(c, case=dataclasses.replace(c.case, **changes))


def lit(result: CaseResult) -> CaseResult:
    """With a speed of light that makes its time look short."""
    shape = dataclasses.replace(result.case.shape, light_speed_ns=10**9)
    return with_case(shape=shape)(result)


def on_gpu(run: Run, median_ns: float, floor_ns: float | None) -> Run:
    """The run as of a GPU, with this time and floor of every shape."""

    def changed(result: CaseResult) -> CaseResult:
        assert isinstance(result.outcome, Passed) and result.timing is not None
        timed = dataclasses.replace(result.timing, median_ns=median_ns, floor_ns=floor_ns)
        return dataclasses.replace(
            result, outcome=dataclasses.replace(result.outcome, timing=timed)
        )

    return dataclasses.replace(
        with_cases(run, changed, CaseKind.BENCHMARK), device=H200, clock=Clock.WORKER
    )


FOREIGN: dict[str, Callable[[Run], Run]] = {
    "8 competition, seed 1: this test case is there too often": lambda r: with_cases(
        r, lambda c: r.cases[0], CaseKind.TEST
    ),
    "1000 competition, seed 2: this test case of its task is missing": lambda r: (
        dataclasses.replace(r, cases=tuple(c for c in r.cases if c.case.seed != 2))
    ),
    "nothing, seed 1: its task has no such test case": lambda r: with_cases(
        r, with_case(inputs="nothing"), CaseKind.TEST
    ),
    "1x1x1 competition, seed 1: its task has no such test case": lambda r: with_cases(
        r, with_case(shape=make_shape(1, 1, 1)), CaseKind.TEST
    ),
    "the speed of light is not the one that its task publishes": lambda r: with_cases(
        r, lit, CaseKind.BENCHMARK
    ),
    "its task times signed inputs, not competition": lambda r: with_cases(
        r, with_case(inputs="competition"), CaseKind.BENCHMARK
    ),
    "its task does not time this shape": lambda r: with_cases(
        r, lambda c: with_case(shape=make_shape(*map(ord, "abc")))(c), CaseKind.BENCHMARK
    ),
    "8 competition, seed 1: it passed with an error that its task does not allow": lambda r: (
        checked(r, max_rel=1e-5)
    ),
    "4096: it is more than 20 times as fast as its task's speed of light": lambda r: on_gpu(
        r, 74.0, 7.7
    ),
    "4096: its floor is none: not a 100,000th of its task's speed of light": lambda r: on_gpu(
        r, 2_000.0, 0.001
    ),
    "its task is called double, and it says other": lambda r: dataclasses.replace(r, task="other"),
}


@pytest.mark.parametrize("said", FOREIGN)
def test_a_run_with_other_cases_than_its_task_is_not_taken(
    said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, forged = load(DOUBLE), FOREIGN[said](double_run())
    assert any(said in one for one in planned.departures(forged, task))
    file, there = tmp_path / "b.json", tmp_path / "there.db"
    file.write_bytes(bundle.dumps(bundle.make([forged], with_source=True)))
    for command in (["verify"], ["import", "--db", f"sqlite:///{there}"]):
        assert run_cli([*command, str(file), "--problem", str(DOUBLE)]) in (1, 2)
        assert "BAD" in (shown := "".join(capsys.readouterr())) or "is not sound" in shown
    assert not there.exists()


def test_what_a_judge_records_of_the_task_at_hand_has_no_departure() -> None:
    task, run = load(DOUBLE), double_run()
    honest = [
        run,
        with_cases(run, with_case(seed=7), CaseKind.TEST),  # --seed 7
        dataclasses.replace(run, custom_shapes=True, cases=run.cases[:1]),
        dataclasses.replace(run, verdict=Verdict.TIMED_OUT, cases=run.cases[:2]),
        dataclasses.replace(run, verdict=Verdict.IMPORT_ERROR, cases=()),
        dataclasses.replace(
            run, mode=Mode.BENCHMARK, cases=tuple(c for c in run.cases if c.timing is not None)
        ),
        dataclasses.replace(
            run, mode=Mode.TEST, cases=tuple(c for c in run.cases if c.timing is None)
        ),
        dataclasses.replace(run, task_digest="0" * 64, cases=run.cases[:1]),  # another version
    ]
    for made in honest:
        assert planned.departures(made, task) == ()
        assert bundle.problems(made) == () or made.score_ns is not None


@pytest.mark.parametrize(("median_ns", "floor_ns"), [(2_000, 7.7), (76, 7.7), (2_000, None)])
def test_a_device_that_is_faster_or_a_bound_of_a_launch_is_no_departure(
    median_ns: float, floor_ns: float | None
) -> None:
    """32 KB are read in 7.7 ns on an H200; the published 1.5 us are what a launch takes."""
    assert planned.departures(on_gpu(double_run(), median_ns, floor_ns), load(DOUBLE)) == ()


@pytest.mark.parametrize(
    ("rtol", "atol", "changes", "sound"),
    [
        (1e-3, 1e-3, {"max_abs": 50.0, "max_rel": 1000.0}, True),  # in 65504, and in 1e-6
        (1e-3, 1e-3, {"worst": Worst((0,), 65504.0, 65472.0, 1.0)}, True),
        (1e-3, 1e-3, {"worst": Worst((0,), 65504.0, 65408.0, 3.0)}, False),
        (1e-3, 1e-3, {"worst": Worst((0,), 1.0, math.nan, math.inf)}, False),
        (1e-3, 1e-3, {"worst": Worst((0,), math.inf, 1.0, math.inf)}, False),
        (0.1, 0.0, {"worst": Worst((0,), 10.0, 9.0, 1.0), "max_rel": 0.1}, True),
        (0.0, 0.0, {"max_rel": 1e-9}, False),
        (0.0, 0.0, {"max_abs": 1e-9}, False),
        (0.0, 1e-3, {"max_abs": 1e-3, "max_rel": 9.0}, True),
        (0.0, 1e-3, {"max_abs": 2e-3}, False),
        (1e-3, 0.0, {"max_abs": 9.0, "max_rel": 1e-3}, True),
        (1e-3, 0.0, {"max_rel": 2e-3}, False),
    ],
)
def test_a_check_that_passed_has_no_error_that_the_tolerance_does_not_allow(
    rtol: float, atol: float, changes: dict[str, Any], sound: bool
) -> None:
    """The largest errors are of different elements: both may be beyond their own share."""
    task = dataclasses.replace(load(DOUBLE), tolerance=Tolerance(rtol, atol))
    assert (planned.departures(checked(double_run(), **changes), task) == ()) == sound


def test_verify_and_import_say_where_no_task_was_at_hand(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(url, tmp_path / "b.json")
    run_cli(["verify", str(tmp_path / "b.json"), "--problem", str(DOUBLE)])
    told = "that version of nvfp4_gemv is not here (--problem DIR): cases were not compared"
    assert told in capsys.readouterr().out
    run_cli(["import", str(tmp_path / "b.json"), "--db", f"sqlite:///{tmp_path}/there.db"])
    assert told in capsys.readouterr().out
    (tmp_path / "d.json").write_bytes(bundle.dumps(bundle.make([double_run()], with_source=True)))
    assert run_cli(["verify", str(tmp_path / "d.json"), "--problem", str(DOUBLE)]) == 0
    assert capsys.readouterr().out.endswith("\nevery run is sound\n")


@pytest.mark.parametrize(
    ("name", "flaw"),
    [
        ("A" * 101, "has 101 characters, and 100 are the most"),
        ("\u202e" * 50, "holds what cannot be seen"),
        ("alice\u200b", "holds what cannot be seen"),
        ("al\u3164ice", "holds what cannot be seen"),
        ("alice\ufe0f", "holds what cannot be seen"),
        ("alice\u00a0", "holds what cannot be seen"),
        ("alice ", "holds what cannot be seen"),
        ("a\nb", "holds what cannot be seen"),
        ("\x1b[31m", "holds what cannot be seen"),
        ("\ue000", "holds what cannot be seen"),
        ("", "is empty"),
        (" ", "is empty"),
    ],
    ids=ascii,
)
def test_a_name_that_a_board_cannot_show_as_it_is_is_not_sound(name: str, flaw: str) -> None:
    run = sampled_run()
    device = dataclasses.replace(run.device, name=name)
    for forged in (
        dataclasses.replace(run, submission=dataclasses.replace(run.submission, name=name)),
        dataclasses.replace(run, submission=dataclasses.replace(run.submission, author=name)),
        dataclasses.replace(run, device=device),
        dataclasses.replace(run, task=name),
    ):
        (problem,) = bundle.problems(forged)
        assert flaw in problem


@pytest.mark.parametrize(
    "name", ["\u0141\u2603", "a b", "caf\u00e9", "\u05d0\u05d1", "x" * 100], ids=ascii
)
def test_an_honest_name_of_any_script_is_sound(name: str) -> None:
    run = sampled_run()
    named = dataclasses.replace(run.submission, name=name, author=name)
    assert bundle.problems(dataclasses.replace(run, submission=named)) == ()


@pytest.mark.parametrize(
    "name", ["\u202e", " a ", "a\u200bb", "x" * 200, "y" * 99 + " z", "\ufe0f"]
)
def test_whatever_a_file_or_an_author_is_called_the_run_of_it_is_sound(name: str) -> None:
    made = submission_of(Path(f"{name[:90]}.py"), b"x = 1\n", name)
    run = sampled_run()
    assert bundle.problems(dataclasses.replace(run, submission=made)) == ()


def test_a_run_dated_beyond_what_clocks_differ_by_is_not_sound() -> None:
    """A day was allowed: whoever dated a run 23 hours ahead held the standing for that long."""
    now = time.time_ns()
    run = sampled_run()
    for ahead_s, problems in ((60, ()), (600, ("it is dated in the future",))):
        late = dataclasses.replace(run, created_ns=now + ahead_s * 10**9)
        assert bundle.problems(late) == problems


def test_an_imported_run_is_dated_no_later_than_its_import_and_displaces_nobody(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five minutes ahead are allowed: in them it stood before whatever its rival ran."""
    file = tmp_path / "b.json"
    slow = sampled_run("quick", id="dd4000000000", seed=1, times_us=(100, 200, 50))
    ahead_ns = time.time_ns() + 200 * 10**9
    slow = dataclasses.replace(slow, created_ns=ahead_ns)
    file.write_bytes(bundle.dumps(bundle.make([slow], with_source=True)))
    for said in ("imported 1 run\n", "imported 0 runs; 1 was there already\n"):
        assert run_cli(["import", str(file), "--db", url]) == 0
        assert said in capsys.readouterr().out
    with open_store(url, create=False) as store:
        assert store.get("dd4000000000").created_ns <= time.time_ns() < ahead_ns
        standing = {row.id for row in store.latest_eligible(None)}
    assert standing == {"aa1000000000", "bb2000000000"}


def test_import_takes_nothing_from_a_bundle_with_one_unsound_run(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, there = tmp_path / "b.json", tmp_path / "there.db"
    document = exported(url, file)
    document["runs"][1]["score_ns"] = 1.0
    file.write_bytes(resealed(document))
    assert run_cli(["import", str(file), "--db", f"sqlite:///{there}"]) == 2
    assert "not sound" in capsys.readouterr().err
    assert not there.exists()


def test_import_refuses_another_run_under_a_known_id(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.json"
    other = bundle.make([sampled_run("other", id="aa1000000000", seed=8)], with_source=True)
    file.write_bytes(bundle.dumps(other))
    assert run_cli(["import", str(file), "--db", url]) == 2
    assert "another run aa1000000000 is stored already" in capsys.readouterr().err


@pytest.mark.parametrize("doubt", [Doubt.EMULATED, Doubt.ROOT_WORKER, Doubt.SHARED_GPU])
def test_what_never_ranks_does_not_rank_by_being_imported(
    doubt: Doubt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, there = tmp_path / "b.json", f"sqlite:///{tmp_path / 'there.db'}"
    file.write_bytes(bundle.dumps(bundle.make([sampled_run(doubts=[doubt])], with_source=True)))
    assert run_cli(["import", str(file), "--db", there]) == 0
    with open_store(there, create=False) as store:
        assert store.latest_eligible(None) == () and len(store.runs()) == 1


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with two keys, and the allowed_signers of the first."""
    for name in ("k1", "k2"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(argv, check=True)
    public = (tmp_path / "k1.pub").read_text(encoding="ascii")
    (tmp_path / "signers").write_text(f"organiser@example.org {public}", encoding="ascii")
    return tmp_path


@needs_ssh
def test_a_signature_names_its_signer_and_only_an_allowed_one_passes(
    url: str, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, signers = keys / "b.json", ["--signers", str(keys / "signers")]
    exported(url, file)
    assert run_cli(["verify", str(file), *signers]) == 2
    assert "is not signed" in capsys.readouterr().err
    document = exported(url, file, "--sign", str(keys / "k1"))
    capsys.readouterr()
    assert run_cli(["verify", str(file), *signers]) == 0
    assert "signed by organiser@example.org" in capsys.readouterr().out
    assert run_cli(["verify", str(file)]) == 0
    assert "nobody vouches for" in capsys.readouterr().out
    document["runs"][0]["message"] = "changed"
    file.write_bytes(resealed(document))
    assert run_cli(["verify", str(file)]) == 2
    assert "signature does not hold" in capsys.readouterr().err
    exported(url, file, "--sign", str(keys / "k2"))
    assert run_cli(["verify", str(file), *signers]) == 2
    assert "not in" in capsys.readouterr().err


@needs_ssh
@pytest.mark.parametrize("signature", ["nonsense", "-----BEGIN SSH SIGNATURE-----\nAAAA\n"])
def test_a_signature_that_is_none_is_refused(
    signature: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.json"
    made = bundle.make(some_runs(), with_source=True)
    file.write_bytes(bundle.dumps(dataclasses.replace(made, signature=signature)))
    assert run_cli(["verify", str(file)]) == 2
    assert "signature does not hold" in capsys.readouterr().err


# Replay


def test_a_revealed_key_draws_the_same_seeds_again() -> None:
    seeds = Seeds()
    drawn = [seeds.draw() for _ in range(5)]
    again = Seeds(bytes.fromhex(seeds.key))
    assert [again.draw() for _ in range(5)] == drawn


def test_a_job_carries_its_replay_key_to_the_judge() -> None:
    job = Job("/x", sampled_run().submission, "cpu", Mode.TEST, replay_key=SECRET)
    assert codec.decode(Job, json.loads(json.dumps(codec.encode(job)))) == job


def test_a_run_made_here_is_replayed_from_its_bundle_to_the_same_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(DOUBLE)
    source, file = tmp_path / "two.py", tmp_path / "b.json"
    source.write_text("def custom_kernel(data):\n    return data[0] * 2\n")
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    made = ["run", str(source), "--mode", "test", "--device", "cpu", "--db", url, "--quiet"]
    assert run_cli(made) == 0
    assert run_cli(["export", str(file), "--db", url, "--all", "--without-source"]) == 0
    capsys.readouterr()
    assert run_cli(["replay", str(file), "--quiet"]) == 2
    assert "--source" in capsys.readouterr().err
    assert run_cli(["replay", str(file), "--quiet", "--json", "--source", str(source)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["replays"]
    assert found["verdict"] == found["replayed"] == "passed"
    assert {case["replayed"] for case in found["cases"]} == {"passed"}
    assert run_cli(["replay", str(file), "--quiet", "--source", str(source)]) == 0
    assert capsys.readouterr().out.endswith("\n\nThe verdict is the same here.\n")
    with open_store(url, create=False) as store:
        assert len(store.runs()) == 1  # a replay proves nothing, and is not kept
    source.write_text("def custom_kernel(data):\n    return data[0] * 3\n")
    assert run_cli(["replay", str(file), "--quiet", "--source", str(source)]) == 2
    assert "not the text" in capsys.readouterr().err


def test_replay_finds_runs_by_name_as_export_does(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.json"
    runs = [
        sampled_run("half", id="aa1000000000", created=1),
        sampled_run("half", id="bb2000000000", created=2),
        sampled_run("kernel", id="cc3000000000"),
        sampled_run("kernel", id="dd4000000000", author="bob"),
    ]

    def chosen(*keys: str) -> list[str]:
        return [run.id for run in replay._chosen(tuple(runs), keys, file)]

    assert chosen("half") == chosen("submissions/half.py") == ["bb2000000000"]  # its latest
    assert chosen("aa1", "half", "bb2000000000") == ["aa1000000000", "bb2000000000"]
    for key, said in (
        ("kernel", "'kernel' may be cc3000000000 (kernel by ada), dd4000000000 (kernel by bob)"),
        ("nope", "no run 'nope', and none of a submission of that name"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            chosen(key)


def test_a_run_of_another_version_of_the_task_is_not_replayed(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(url, tmp_path / "b.json")
    assert run_cli(["replay", str(tmp_path / "b.json"), "--problem", str(DOUBLE)]) == 2
    assert "another version of the task" in capsys.readouterr().err


def test_a_run_from_the_future_or_with_a_source_that_no_file_holds_is_not_sound() -> None:
    run = some_runs()[0]
    late = dataclasses.replace(run, created_ns=9 * 10**18)
    assert bundle.problems(late) == ("it is dated in the future",)
    odd = dataclasses.replace(run, submission=dataclasses.replace(run.submission, source="\ud800"))
    assert bundle.problems(odd) == ("its source is not the one that its sha256 names",)


def test_export_writes_through_links_and_into_pipes(url: str, tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    exported(url, target)
    link.symlink_to("target")
    exported(url, link, "cc")
    assert link.is_symlink() and bundle.loads(target.read_bytes(), "target").runs
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    assert run_cli(["export", str(pipe), "--db", url]) == 0
    assert bundle.loads(reader.communicate(timeout=60)[0], "pipe").runs
    assert pipe.is_fifo()


def test_show_and_export_rank_by_the_present_task_as_the_board_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "task"
    shutil.copytree(DOUBLE, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(root)
    task = load(root)
    run = sampled_run("a", id="abc", device=CPU, floor=None, times_us=(20.0, 40.0),
                      shapes=task.ranked, task=task.name, digest=task.digest)  # fmt: skip
    db = f"sqlite:///{tmp_path}/runs.db"
    with open_store(db, create=True) as store:
        store.add(run)
    assert run_cli(["show", "abc", "--db", db]) in (None, 0)
    assert "rank 1 of 1" in capsys.readouterr().out
    with (root / "shapes.yaml").open("a") as file:
        file.write("# another version\n")
    run_cli(["show", "abc", "--db", db])
    assert "rank 1" not in capsys.readouterr().out
    assert run_cli(["export", str(tmp_path / "x.json"), "--db", db]) == 2
    assert "no run holds a standing" in capsys.readouterr().err
