"""What a gate concludes: evidence about submissions -> states, an exit code, reasons.  Pure.

Nothing verified is never a success: what is missing counts, not only what failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.model import Case, CaseKind, CaseResult, Failed, Run, Submission, Verdict
from harness.slowdown import MOST_PAIRS, Absent, Pace, Speed

#: Somebody tried something: reported before what merely fails.
_GRAVE = (Verdict.TAMPERED, Verdict.IMPLAUSIBLE, Verdict.PROTOCOL_ERROR)


class State(StrEnum):
    """What became of one submission at the gate."""

    VERIFIED = "verified"
    FAILED = "failed"
    UNVERIFIED = "not verified"
    BROKEN = "not judged"  # the machine failed, not the submission


class Gap(StrEnum):
    """What can be missing without anybody's fault, and be let through by name."""

    UNSUPPORTED = "unsupported"  # this device cannot run it
    UNCHANGED = "unchanged"  # --changed found nothing to judge
    NO_BASELINE = "no-baseline"  # the baseline does not hold this submission

    @property
    def remedy(self) -> str:
        """What lets it through, in words."""
        what = {
            Gap.UNSUPPORTED: "what this device cannot run",
            Gap.UNCHANGED: "a gate that has nothing to judge",
            Gap.NO_BASELINE: "what has no baseline",
        }[self]
        return f"--allow-unverified {self} lets pass {what}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One submission at the gate: the evidence, and what it comes to."""

    submission: Submission
    state: State
    message: str = ""  # one line; empty when verified
    run: Run | None = None
    cached: bool = False
    missing: tuple[Case, ...] = ()  # cases that the task asks for and the run does not hold
    gap: Gap | None = None
    let_through: bool = False
    speed: Speed | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """A submission whose verdict is known, judged to prove that the gate works."""

    name: str  # "right" or "wrong"
    verdict: str
    ok: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class GateReport:
    """All that one `harness gate` found."""

    task: str
    device: str
    findings: tuple[Finding, ...]
    controls: tuple[Control, ...] = ()  # empty when every verdict came from the cache
    unchanged: tuple[str, ...] = ()  # files that --changed left out
    allowed: tuple[Gap, ...] = ()
    duration_ns: int = 0
    interrupted: bool = False  # what was not judged yet is among the findings, as not judged

    @property
    def broken(self) -> bool:
        """Whether the gate itself cannot be relied on."""
        return any(not c.ok for c in self.controls) or self.count(State.BROKEN) > 0

    @property
    def exit_code(self) -> int:
        """0 all verified or let through, 1 something was not, 3 the machine failed, 130 Ctrl-C."""
        if self.interrupted:
            return 130
        if self.broken:
            return 3
        if not self.findings:
            return 0 if self.unchanged and Gap.UNCHANGED in self.allowed else 1
        return 0 if all(f.state is State.VERIFIED or f.let_through for f in self.findings) else 1

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What --allow-unverified could let through and was not asked to."""
        there = {f.gap for f in self.findings if not f.let_through}
        if not self.findings and self.unchanged and Gap.UNCHANGED not in self.allowed:
            there.add(Gap.UNCHANGED)
        return tuple(gap for gap in Gap if gap in there)

    def count(self, state: State) -> int:
        return sum(f.state is state for f in self.findings)


def conclude(
    submission: Submission,
    run: Run,
    expected: Sequence[Case],
    *,
    cached: bool = False,
    allowed: Sequence[Gap] = (),
) -> Finding:
    """Hold a run against the cases that the task asks for."""
    missing = missing_cases(run, expected)
    wrong = [r for r in run.cases if r.verdict not in (Verdict.PASSED, Verdict.UNSUPPORTED)]
    if run.verdict is Verdict.UNSUPPORTED and wrong:
        # One case that the device cannot run is no excuse for another that came out wrong.
        message = f"{wrong[0].verdict}: {place(wrong[0].case)}: {wrong[0].message}"
        return Finding(submission, State.FAILED, message, run, cached, missing)
    if run.verdict is Verdict.UNSUPPORTED:
        return Finding(
            submission,
            State.UNVERIFIED,
            f"unsupported: {run.message}",
            run,
            cached,
            missing,
            gap=Gap.UNSUPPORTED,
            let_through=Gap.UNSUPPORTED in allowed,
        )
    if run.verdict is not Verdict.PASSED:
        return Finding(
            submission, State.FAILED, f"{run.verdict}: {run.message}", run, cached, missing
        )
    if missing or not expected:
        message = (
            f"{len(missing)} of {len(expected)} cases are missing from its run, the first is "
            f"{place(missing[0])}"
            if missing
            else "the task asks for no case: shapes.yaml lists no tests"
        )
        return Finding(submission, State.UNVERIFIED, message, run, cached, missing)
    return Finding(submission, State.VERIFIED, "", run, cached)


def missing_cases(run: Run, expected: Sequence[Case]) -> tuple[Case, ...]:
    """Test cases that the task asks for and the run has no result of; repeated rows count."""
    there = Counter(_key(r.case) for r in run.cases if r.case.kind is CaseKind.TEST)
    missing = []
    for case in expected:
        if there[_key(case)] > 0:
            there[_key(case)] -= 1
        else:
            missing.append(case)
    return tuple(missing)


def _key(case: Case) -> tuple[object, ...]:
    return case.shape.axes, case.inputs, case.seed


def with_speed(
    finding: Finding, speed: Speed, *, strict: bool, allowed: Sequence[Gap] = ()
) -> Finding:
    """Add what the comparison with the baseline found; correctness has been verified before."""
    state, message, gap = finding.state, finding.message, finding.gap
    if speed.absent is not None:
        state = State.UNVERIFIED
        gap = Gap.NO_BASELINE if speed.absent is Absent.ENTRY else None
        message = f"its speed could not be compared: {speed.message}"
    elif speed.message:
        state, message = State.FAILED, speed.message
    elif slower := speed.at(Pace.SLOWER):
        worst = max(slower, key=lambda s: s.ratio)
        state = State.FAILED
        least = "at least " if speed.at(Pace.AMBIGUOUS) else ""
        message = (
            f"slower than {speed.baseline} on {least}{len(slower)} of {len(speed.shapes)} shapes; "
            f"worst {worst.shape.label}: {worst.percent} (allowed: {speed.max_percent:g}%)"
        )
    elif unsure := speed.at(Pace.AMBIGUOUS):
        pairs = max(shape.pairs for shape in unsure)
        more = "" if pairs >= MOST_PAIRS else "--budget gives it more, "
        message = (
            f"could not tell from {pairs} pairs whether it is {speed.max_percent:g}% slower than "
            f"{speed.baseline} on {len(unsure)} of {len(speed.shapes)} shapes ({more}--strict "
            f"fails it); first {unsure[0].shape.label}: {unsure[0].percent}"
        )
        state = State.FAILED if strict else state
    return replace(
        finding,
        state=state,
        message=message,
        gap=gap,
        let_through=gap is not None and gap in allowed,
        speed=speed,
    )


def severity(finding: Finding) -> int:
    """Smaller is more serious: the order in which a limited number of reports is given."""
    if finding.state is State.FAILED:
        return 1 if finding.run is None or finding.run.verdict not in _GRAVE else 0
    order = (State.BROKEN, State.UNVERIFIED, State.VERIFIED)
    return 2 + order.index(finding.state) + (1 if finding.let_through else 0)


def first_failure(run: Run) -> CaseResult | None:
    """The case that the run's verdict is about: the first of that verdict."""
    bad = [r for r in run.cases if isinstance(r.outcome, Failed)]
    return next((r for r in bad if r.verdict is run.verdict), bad[0] if bad else None)


def place(case: Case) -> str:
    return f"{case.shape.label} ({case.inputs})"


def control_finding(name: str, run: Run) -> Control:
    """Whether a control was judged as it must be: right passes, wrong fails by its numbers.

    The wrong control has to fail every case for a wrong answer: stopped by anything else, it would
    say nothing about the comparison that all later verdicts rest on.
    """
    if name == "right":
        ok = run.verdict is Verdict.PASSED
        message = "" if ok else f"the right control got {run.verdict}: {run.message}"
        return Control(name, run.verdict.value, ok, message)
    let_by = [
        r.case for r in run.cases if r.verdict not in (Verdict.WRONG_ANSWER, Verdict.NONFINITE)
    ]
    message = ""
    if not run.cases:
        message = f"the wrong control was not compared at all: {run.verdict}: {run.message}"
    elif let_by:
        message = f"the wrong control was not found wrong on {place(let_by[0])}"
    if message:
        message += "; put one into controls/wrong.py whose numbers are wrong in every case"
    return Control(name, run.verdict.value, not message, message)


def sentence(report: GateReport) -> str:
    """What a reader takes home, in one line, and what would let through what was not verified."""
    bad = [c for c in report.controls if not c.ok]
    if bad:
        return f"the gate does not work here, nobody was judged: {bad[0].message}"
    parts = [_counted(report, state) for state in State if report.count(state)]
    through = sum(f.let_through for f in report.findings)
    if through:
        parts.append(f"{through} let through")
    if report.unchanged:
        parts.append(f"{len(report.unchanged)} unchanged and left out")
    said = "interrupted: " * report.interrupted + ", ".join(parts)
    if not report.findings:
        said = f"nothing was verified ({said or 'no submission'})"
    return "; ".join((said, *(gap.remedy for gap in report.gaps)))


def _counted(report: GateReport, state: State) -> str:
    """`3 verified, 1 of them with a time too close to call`: a pass that says less than others."""
    said = f"{report.count(state)} {state}"
    if state is not State.VERIFIED:
        return said
    unsure = sum(
        f.state is state and f.speed is not None and bool(f.speed.at(Pace.AMBIGUOUS))
        for f in report.findings
    )
    return f"{said}, {unsure} of them with a time too close to call" if unsure else said
