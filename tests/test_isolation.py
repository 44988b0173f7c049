"""The probe tells a level that holds from one that does not, and the choice follows it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness import bubblewrap, confine, isolation
from harness.errors import SandboxError
from harness.isolation import LevelReport, Proof
from harness.isolation_probe import Claim
from harness.model import Isolation, IsolationPolicy
from harness.sandbox import Plan
from tests.workers import make_plan, require, scratch_folder

ROOT = Path(__file__).resolve().parent.parent
Change = Callable[[confine.Spec], confine.Spec]


@pytest.fixture
def scratch() -> Iterator[Path]:
    with scratch_folder() as folder:
        yield folder


def failed(plan: Plan, level: Isolation) -> set[Claim]:
    return {claim for claim, held in isolation.prove(plan, level).claims if not held}


def test_every_claim_is_answered(scratch: Path) -> None:
    proof = isolation.prove(make_plan(scratch, ""), Isolation.SEPARATED)
    assert {claim for claim, _ in proof.claims} == set(Claim)


def test_a_sandbox_holds_every_claim(scratch: Path) -> None:
    require(Isolation.SANDBOX)
    assert failed(make_plan(scratch, ""), Isolation.SANDBOX) == set()


def test_two_plain_processes_hold_little(scratch: Path) -> None:
    open_ones = failed(make_plan(scratch, ""), Isolation.SEPARATED)
    assert {Claim.NETWORK, Claim.READ, Claim.FILTER, Claim.NAMESPACES, Claim.SOCKETS} <= open_ones
    assert not {Claim.SCRATCH, Claim.ORPHANS, Claim.PRIVILEGES, Claim.DESCRIPTORS} & open_ones


def test_a_readable_root_is_noticed(scratch: Path) -> None:
    require(Isolation.SANDBOX)
    plan = make_plan(scratch, "")
    folders = (Path("/tmp"), Path("/etc"))
    broken = failed(replace(plan, readable=(*plan.readable, *folders)), Isolation.SANDBOX)
    assert Claim.READ in broken


@pytest.mark.parametrize(
    ("change", "claims"),
    [
        (lambda spec: replace(spec, filtered=False), {Claim.FILTER, Claim.NAMESPACES}),
        (lambda spec: replace(spec, processes=100_000), {Claim.PROCESSES}),
    ],
)
def test_a_sandbox_without_one_defence_is_noticed(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, change: Change, claims: set[Claim]
) -> None:
    require(Isolation.SANDBOX)
    _with_change(monkeypatch, change)
    assert failed(make_plan(scratch, ""), Isolation.SANDBOX) == claims


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        (lambda spec: replace(spec, filtered=False), Claim.FILTER),
        (lambda spec: replace(spec, filtered=False), Claim.NETWORK),
        (lambda spec: replace(spec, filtered=False), Claim.NAMESPACES),
        (lambda spec: replace(spec, landlock=False), Claim.READ),
        (lambda spec: replace(spec, write=(*spec.write, "/")), Claim.WRITE),
    ],
)
def test_restriction_without_one_defence_is_noticed(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, change: Change, claim: Claim
) -> None:
    require(Isolation.RESTRICTED)
    assert claim not in failed(make_plan(scratch, ""), Isolation.RESTRICTED)
    _with_change(monkeypatch, change)
    assert claim in failed(make_plan(scratch, ""), Isolation.RESTRICTED)


def _with_change(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    to_json = confine.Spec.to_json
    monkeypatch.setattr(confine.Spec, "to_json", lambda spec: to_json(change(spec)))


def test_a_namespace_that_is_missing_is_noticed(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(Isolation.SANDBOX)
    kept = tuple(flag for flag in bubblewrap._NAMESPACES if flag != "--unshare-net")
    monkeypatch.setattr(bubblewrap, "_NAMESPACES", kept)
    assert failed(make_plan(scratch, ""), Isolation.SANDBOX) == {Claim.NETWORK, Claim.SOCKETS}


def test_an_unhardened_target_is_not_what_is_attacked(scratch: Path) -> None:
    # The judge hardens itself; the probe must not fail a level for a doctor that did not.
    before = confine.is_dumpable()
    isolation.prove(make_plan(scratch, ""), Isolation.SEPARATED)
    assert confine.is_dumpable() is before


def test_the_levels_come_strongest_first_with_reason_and_remedy() -> None:
    reports = isolation.levels()
    assert [report.level for report in reports] == list(Isolation)
    assert reports[-1].available
    for report in reports:
        assert report.available or (report.reason and report.remedy)


def reports(monkeypatch: pytest.MonkeyPatch, *available: Isolation) -> None:
    monkeypatch.setattr(
        isolation,
        "_report",
        lambda level: LevelReport(level, level in available, "no bubblewrap", "install it"),
    )


@pytest.mark.parametrize(
    ("available", "chosen"),
    [
        ((Isolation.SANDBOX, Isolation.RESTRICTED), Isolation.SANDBOX),
        ((Isolation.RESTRICTED,), Isolation.RESTRICTED),
        ((), Isolation.SEPARATED),
    ],
)
def test_the_best_proved_level_is_chosen(
    monkeypatch: pytest.MonkeyPatch, available: tuple[Isolation, ...], chosen: Isolation
) -> None:
    reports(monkeypatch, *available)
    assert isolation.choose(IsolationPolicy.AUTO) is chosen


def test_require_fails_closed_and_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    reports(monkeypatch, Isolation.RESTRICTED)
    with pytest.raises(SandboxError, match="no bubblewrap; install it"):
        isolation.choose(IsolationPolicy.REQUIRE)
    reports(monkeypatch, Isolation.SANDBOX)
    assert isolation.choose(IsolationPolicy.REQUIRE) is Isolation.SANDBOX


def test_a_level_is_tried_again_before_it_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    level = Isolation.SANDBOX
    answers = [LevelReport(level, False, "no answer in time"), LevelReport(level, True)]
    monkeypatch.setattr(isolation, "_tried", lambda level: answers.pop(0))
    assert isolation._report.__wrapped__(level).available
    answers += [LevelReport(level, False, "first"), LevelReport(level, False, "second")]
    assert isolation._report.__wrapped__(level).reason == "second"


def test_off_probes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(level: Isolation) -> LevelReport:
        raise AssertionError(level)

    monkeypatch.setattr(isolation, "_report", refuse)
    assert isolation.choose(IsolationPolicy.OFF) is Isolation.SEPARATED


def test_a_claim_answered_twice_holds_only_if_both_answers_do() -> None:
    proof = Proof(((Claim.NETWORK, True), (Claim.NETWORK, False), (Claim.READ, True)), False, 0)
    assert proof.failed(frozenset({Claim.NETWORK, Claim.READ})) == (Claim.NETWORK,)


def test_a_claim_that_was_not_answered_does_not_hold() -> None:
    assert Proof((), False, 0).failed(frozenset({Claim.READ})) == (Claim.READ,)


def test_a_probe_that_dies_is_our_failure(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        isolation, "worker_argv", lambda *_: (sys.executable, "-I", "-S", "-c", "1/0")
    )
    with pytest.raises(SandboxError, match="ZeroDivisionError"):
        isolation.prove(make_plan(scratch, ""), Isolation.SEPARATED)


SHOW = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    "from harness import isolation\n"
    "for report in isolation.levels():\n"
    "    print(report.level, report.available, bool(report.proof and report.proof.root))\n"
    "    print(report.reason, file=sys.stderr)\n"
)
SYSTEM_PYTHON = Path("/usr/bin/python3")


def _as_user(*prefix: str) -> dict[str, tuple[str, ...]]:
    """The levels as another kind of user finds them, by the interpreter of the system."""
    version = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info >= (3, 11))"],
        capture_output=True,
        text=True,
        check=False,
    )
    if os.geteuid() != 0 or version.stdout != "True\n" or not os.access(ROOT, os.R_OK):
        pytest.skip("needs root, and a /usr/bin/python3 of 3.11 or newer, to become other users")
    done = subprocess.run(
        [*prefix, SYSTEM_PYTHON, "-B", "-c", SHOW],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[0]: tuple(row[1:]) for row in rows} | {"reasons": (done.stderr,)}


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param(
            ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"), id="normal user"
        ),
        pytest.param(
            ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"),
            id="root that may not mount",
        ),
        pytest.param((), id="root"),
    ],
)
def test_every_kind_of_user_gets_what_the_machine_offers(prefix: tuple[str, ...]) -> None:
    for level in (Isolation.SANDBOX, Isolation.RESTRICTED):
        require(level)
    found = _as_user(*prefix)
    reasons = found.pop("reasons")
    assert found == {level.value: ("True", "False") for level in Isolation}, reasons


def test_where_namespaces_are_refused_the_next_level_is_found() -> None:
    require(Isolation.RESTRICTED)
    # As in a container whose runtime refuses user namespaces: the filter of our own does it.
    code = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from harness import confine, seccomp\n"
        "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "confine.prctl(38, 1)\n"
        "seccomp.install(seccomp.program(machine=os.uname().machine, namespaces=True))\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    found = _as_user(str(SYSTEM_PYTHON), "-B", "-c", code)
    assert found["sandbox"] == ("False", "False")
    assert found["restricted"] == ("True", "False"), found
    missing = "bubblewrap is not installed" if shutil.which("bwrap") is None else "ermi"
    assert missing in found["reasons"][0]
