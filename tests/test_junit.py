"""The JUnit report: what the schema allows, what readers understand, what cannot break it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

import junitparser
import pytest

from harness.gate import Control, Finding, Gap, GateReport, State, conclude, with_speed
from harness.gate_controls import right_control
from harness.model import CaseResult, Failed, Job, Mode, Run, Verdict
from harness.plan import plan
from harness.render.junit import junit
from harness.slowdown import Absent, Pace, ShapeSpeed, Speed
from harness.task import load
from tests.fakes import SHAPES, make_check
from tests.gate_fakes import DOUBLE, FakeJudge

TASK = load(DOUBLE)
RIGHT = right_control(DOUBLE)

#: What the schema of Jenkins' xUnit plugin, junit-10.xsd, allows of what we use: an element's
#: required and optional attributes, and its children.
SCHEMA: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": (
        {"name"},
        {"time", "classname", "group"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "skipped": (set(), {"type", "message"}, set()),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
}


def finding(name: str, *, allowed: tuple[Gap, ...] = ()) -> Finding:
    submission = replace(RIGHT, name=name, path=f"submissions/{name}.py")
    job = Job(str(DOUBLE), submission, "cpu", Mode.TEST)
    run = FakeJudge()(job, lambda step: None)
    return conclude(submission, run, plan(TASK, job).tests, allowed=allowed)


def report(*findings: Finding, controls: tuple[Control, ...] = ()) -> GateReport:
    return GateReport("double", "a CPU", findings, controls, duration_ns=1_234_567_890)


def speed(pace: Pace) -> Speed:
    shape = ShapeSpeed(SHAPES[0], pace, 1.03, 1.02, 1.04, 0.001, 4)
    return Speed("main", 1.0, (shape,))


def examples() -> Iterator[tuple[str, GateReport]]:
    names = ("good", "wrong", "crash", "syntax", "gpu", "empty", "partial", "mixed", "sly")
    for name in names:
        yield name, report(finding(name))
    yield "all", report(*map(finding, names), controls=(Control("right", "passed", True),))
    yield "let through", report(finding("gpu", allowed=(Gap.UNSUPPORTED,)))
    yield "machine", report(Finding(RIGHT, State.BROKEN, "the GPU fell off the bus"))
    yield "control", report(controls=(Control("right", "crashed", False, "got crashed"),))
    yield "nothing", report()
    unchanged = GateReport("double", "", (), unchanged=("a.py",), allowed=(Gap.UNCHANGED,))
    yield "unchanged", unchanged
    for pace in Pace:
        for strict in (False, True):
            judged = with_speed(finding("good"), speed(pace), strict=strict)
            yield f"{pace} {strict}", report(judged)
    absent = Speed("main", 1.0, message="main does not hold it", absent=Absent.ENTRY)
    for allowed in ((), (Gap.NO_BASELINE,)):
        judged = with_speed(finding("good"), absent, strict=False, allowed=allowed)
        yield f"no baseline {allowed}", report(judged)
    lost = Speed("main", 1.0, message="it has no time on 1 of 3 shapes")
    yield "lost", report(with_speed(finding("good"), lost, strict=False))
    yield "late", report(with_speed(finding("good"), LATE, strict=False))


#: What a head that crashed in a later look leaves behind.
LATE = replace(speed(Pace.AMBIGUOUS), message="it could not be timed: crashed: the process ended")


EXAMPLES = dict(examples())


def test_a_crash_while_it_is_timed_is_the_reason_and_not_a_shape_that_was_open_then() -> None:
    (failure,) = ElementTree.fromstring(junit(EXAMPLES["late"])).iter("failure")
    assert (failure.get("type"), failure.get("message")) == ("speed", LATE.message)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_report_keeps_to_the_schema_and_counts_right(name: str) -> None:
    root = ElementTree.fromstring(junit(EXAMPLES[name]))
    assert root.tag == "testsuites"
    for element in root.iter():
        required, optional, children = SCHEMA[element.tag]
        assert required <= set(element.attrib) <= required | optional
        assert {child.tag for child in element} <= children
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases) > 0
        for kind, counter in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.attrib[counter]) == len(suite.findall(f"testcase/{kind}"))
        assert len({case.attrib["name"] for case in cases}) == len(cases)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_report_shows_a_failure_exactly_when_the_exit_code_is_not_0(name: str) -> None:
    given = EXAMPLES[name]
    read = junitparser.JUnitXml.fromstring(junit(given).encode())
    assert (read.failures + read.errors > 0) == (given.exit_code != 0)


def test_junitparser_reads_a_case_for_every_submission_shape_and_family() -> None:
    read = junitparser.JUnitXml.fromstring(
        junit(report(finding("good"), finding("wrong"))).encode()
    )
    suites = {suite.name: suite for suite in read}
    good = suites["submissions/good.py"]
    assert [case.name for case in good] == [
        "8 competition",
        "1000 competition",
        "64 signed",
        "verdict",
    ]
    assert {case.classname for case in good} == {"double.submissions/good"}
    assert all(case.is_passed for case in good)
    (failure,) = next(iter(suites["submissions/wrong.py"])).result
    assert isinstance(failure, junitparser.Failure)
    assert failure.type == "wrong_answer"
    assert "7 of 8 elements are wrong" in failure.message


def test_unsupported_is_told_apart_from_passed() -> None:
    (suite,) = junitparser.JUnitXml.fromstring(junit(EXAMPLES["let through"]).encode())
    assert [case.is_skipped for case in suite] == [True] * 4


def test_a_repeated_row_has_a_name_of_its_own() -> None:
    given = finding("good")
    assert given.run is not None
    twice = replace(given, run=replace(given.run, cases=given.run.cases[:1] * 3))
    root = ElementTree.fromstring(junit(report(twice)))
    names = [case.attrib["name"] for case in root.iter("testcase")]
    assert names[:3] == ["8 competition", "8 competition #2", "8 competition #3"]


def test_namesakes_have_classes_of_their_own() -> None:
    one = finding("good")
    other = replace(one, submission=replace(one.submission, path="others/good.py"))
    root = ElementTree.fromstring(junit(report(one, other)))
    tests = [(case.attrib["classname"], case.attrib["name"]) for case in root.iter("testcase")]
    assert len(set(tests)) == len(tests) == 8


HOSTILE = "\x1b[31mbad\x1b[0m \x00 ]]> <&> \ud800 \ufffe \u202e <!-- \r\n\t &#27; \"'"


def test_no_text_of_a_submission_can_break_the_file() -> None:
    failed = Failed(Verdict.RUNTIME_ERROR, HOSTILE, make_check(mismatches=1))
    given = finding("wrong")
    assert given.run is not None
    run: Run = replace(
        given.run,
        cases=tuple(CaseResult(r.case, failed) for r in given.run.cases),
        message=HOSTILE,
        log=HOSTILE,
    )
    ugly = replace(RIGHT, name=HOSTILE, path=HOSTILE)
    cases = [r.case for r in run.cases]
    findings = (
        conclude(ugly, run, cases),
        conclude(ugly, replace(run, cases=()), cases),
        Finding(ugly, State.BROKEN, HOSTILE),
    )
    document = junit(replace(report(*findings), task=HOSTILE))
    assert document.isascii()
    assert not any(ord(c) < 32 and c != "\n" for c in document)
    root = ElementTree.fromstring(document)
    (message, *_) = {e.attrib["message"] for e in root.iter("failure")}
    assert "\\x1b[31mbad\\x1b[0m" in message
    assert "<&>" in message, "readable, not dropped"
    assert junitparser.JUnitXml.fromstring(document.encode()).errors == 1


def test_a_kept_verdict_took_no_time_now() -> None:
    kept = replace(finding("good"), cached=True)
    (suite,) = ElementTree.fromstring(junit(report(kept)))
    assert float(suite.attrib["time"]) == 0
    (suite,) = ElementTree.fromstring(junit(report(finding("good"))))
    assert float(suite.attrib["time"]) == 22.4
