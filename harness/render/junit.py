"""A gate as JUnit XML: one suite a submission, one case a shape and input family.

Keeps to what the Jenkins schema (junit-10.xsd) allows.  A file shows a failure or an error exactly
when the gate's exit code is not 0, so a reader of the file alone cannot conclude otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from harness.gate import Finding, GateReport, State, sentence
from harness.model import Case, CaseKind, CaseResult, Failed, Verdict
from harness.render import text
from harness.slowdown import Pace

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
#: How each document begins.
BEGIN = f'{_DECLARATION}<testsuites name="harness gate"'

Kind = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class _Test:
    """One `testcase`."""

    name: str
    kind: Kind = "passed"
    type: str = ""
    message: str = ""
    details: str = ""


def junit(report: GateReport) -> str:
    """The document, in ASCII: no encoding and no control character can break it."""
    root = ElementTree.Element("testsuites", {"name": "harness gate"})
    totals: Counter[str] = Counter()
    for name, classname, tests, finding in _suites(report):
        counts = Counter(test.kind for test in tests)
        totals += Counter(tests=len(tests), failures=counts["failure"], errors=counts["error"])
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            {
                "name": _safe(name),
                "tests": str(len(tests)),
                "failures": str(counts["failure"]),
                "errors": str(counts["error"]),
                "skipped": str(counts["skipped"]),
                **_origin(finding),
            },
        )
        for test in tests:
            _add(suite, test, classname)
    root.attrib |= {key: str(totals[key]) for key in ("tests", "failures", "errors")}
    root.set("time", _seconds(report.duration_ns))
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=False).decode("ascii")
    return f"{_DECLARATION}{body}\n"


def _suites(
    report: GateReport,
) -> Iterator[tuple[str, str, Sequence[_Test], Finding | None]]:
    task = _safe(report.task)
    if report.controls:
        controls = [
            _Test(f"{c.name} control", "passed" if c.ok else "error", "control", c.message)
            for c in report.controls
        ]
        yield "controls", f"{task}.controls", controls, None
    if not report.findings:
        kind: Kind = "failure" if report.exit_code == 1 else "skipped"
        nothing = _Test("submissions", kind, "nothing verified", sentence(report))
        yield "submissions", task, [nothing], None
    for finding in report.findings:
        path = finding.submission.path
        # The whole path: readers merge what has one class and one name.
        yield path, f"{task}.{_safe(path.removesuffix('.py'))}", _tests(finding), finding


def _origin(finding: Finding | None) -> dict[str, str]:
    """When, how long and from which file; a kept verdict took no time now."""
    if finding is None:
        return {}
    found = {"file": _safe(finding.submission.path)}
    if finding.run is not None:
        found["time"] = _seconds(0 if finding.cached else finding.run.duration_ns)
        if moment := text.rfc3339(finding.run.created_ns):
            found["timestamp"] = moment
    return found


def _tests(finding: Finding) -> list[_Test]:
    """Every case that the task asks for, whether or not it was reached, and the speed."""
    named = _Names()
    tests = []
    if finding.run is not None:
        results = [r for r in finding.run.cases if r.case.kind is CaseKind.TEST]
        tests += [_case_test(named(r.case), r) for r in results]
    tests += [_missing(named(case), finding) for case in finding.missing]
    tests += _speed_tests(finding)
    bad = any(test.kind in ("failure", "error") for test in tests)
    if finding.state is State.BROKEN:
        tests.append(_Test("verdict", "error", "harness", finding.message))
    elif finding.state is not State.VERIFIED and not finding.let_through and not bad:
        # Failed before any case, or missing altogether: the cases alone would look harmless.
        kind = finding.run.verdict.value if finding.run is not None else finding.state.value
        if finding.speed is not None and finding.speed.message:
            kind = "speed"
        log = finding.run.log if finding.run is not None else ""
        tests.append(_Test("verdict", "failure", kind, finding.message, log))
    elif finding.state is not State.FAILED:
        kept: Kind = "skipped" if finding.let_through else "passed"
        tests.append(_Test("verdict", kept, finding.state.value, finding.message))
    return tests


class _Names:
    """Names of cases, unique within a suite though shapes.yaml may list a row twice."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, case: Case) -> str:
        name = f"{case.shape.label} {case.inputs}"
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name} #{self._seen[name]}"


def _case_test(name: str, result: CaseResult) -> _Test:
    if not isinstance(result.outcome, Failed):
        return _Test(name)
    kind: Kind = "skipped" if result.verdict is Verdict.UNSUPPORTED else "failure"
    check = result.outcome.check
    details = [f"{result.case.shape.label}, {result.case.inputs} inputs, seed {result.case.seed}"]
    if check is not None:
        details.append(f"{check.mismatches} of {check.elements} elements are wrong")
        if check.worst is not None:
            w = check.worst
            details.append(f"worst at {w.index}: expected {w.expected!r}, got {w.got!r}")
        if check.hint:
            details.append(check.hint)
    return _Test(name, kind, result.verdict.value, result.message, "\n".join(details))


def _missing(name: str, finding: Finding) -> _Test:
    """A case without a result: skipped where the verdict says why, else a failure."""
    run = finding.run
    if run is not None and run.verdict is not Verdict.PASSED:
        return _Test(name, "skipped", run.verdict.value, f"not reached: {run.verdict}")
    return _Test(name, "failure", "missing", "the run holds no result of this case")


def _speed_tests(finding: Finding) -> Iterator[_Test]:
    speed = finding.speed
    for shape in speed.shapes if speed is not None else ():
        assert speed is not None
        said = f"{shape.percent} beside {speed.baseline}, {shape.pairs} pairs"
        failed = shape.pace is Pace.SLOWER
        # Ambiguous fails only where --strict made the whole submission fail.
        unsure = shape.pace is Pace.AMBIGUOUS
        decided = speed.at(Pace.SLOWER) or speed.message
        strict = unsure and finding.state is State.FAILED and not decided
        kind: Kind = "failure" if failed or strict else "skipped" if unsure else "passed"
        yield _Test(f"speed {shape.shape.label}", kind, shape.pace.value, said)


def _add(suite: ElementTree.Element, test: _Test, classname: str) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", {"name": _safe(test.name), "classname": classname}
    )
    if test.kind != "passed":
        attributes = {"type": _safe(test.type), "message": _safe(test.message)}
        child = ElementTree.SubElement(case, test.kind, attributes)
        child.text = "\n".join(text.lines(test.details)) if test.details else None


def _safe(value: str) -> str:
    """One line that XML 1.0 can hold: control characters and lone surrogates as escapes."""
    return text.plain(value)


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.3f}"
