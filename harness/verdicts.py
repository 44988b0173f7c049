"""From what the judge saw to verdicts: of a window, of a case, of a run."""

from __future__ import annotations

from collections.abc import Sequence

from harness import check
from harness.model import CaseResult, Check, Failed, Passed, Tolerance, Verdict, reached
from harness.task import TaskModules
from harness.window import Answer, Prepared, Window

#: These say that somebody tried something; they are not buried under a plain failure before them.
GRAVE = (Verdict.TAMPERED, Verdict.IMPLAUSIBLE, Verdict.PROTOCOL_ERROR)


def examine(
    window: Window, prepared: Prepared, tolerance: Tolerance, modules: TaskModules
) -> Passed | Failed:
    """Check every output of a window; a worker that went on after "done" is found out."""
    if window.answer is None:
        return Failed(Verdict.PROTOCOL_ERROR, "a window without an answer")
    found = _examine_answer(window.answer, prepared, tolerance, modules)
    if isinstance(found, Failed):
        return found
    if window.late:
        return Failed(
            Verdict.TAMPERED, "its output still changed after it had said that it was done"
        )
    return found


def _examine_answer(
    answer: Answer, prepared: Prepared, tolerance: Tolerance, modules: TaskModules
) -> Passed | Failed:
    if not answer.intact:
        return Failed(Verdict.WRONG_ANSWER, "it wrote outside of its buffers")
    found = check.examine_all(
        answer.outputs,
        prepared.expected,
        terms=prepared.terms,
        tolerance=tolerance,
        slack=prepared.slack,
        exact=prepared.exact,
    )
    if answer.changed:
        names = ", ".join(f"data[{index}]" for index in answer.changed)
        return Failed(Verdict.INPUT_MODIFIED, f"it changed its inputs: {names}", found.check)
    if isinstance(found, Failed) and modules.diagnose is not None:
        return check.with_hint(found, modules.diagnose(prepared.data, answer.outputs[0]))
    return found


def overall(results: Sequence[CaseResult], failure: Failed | None) -> tuple[Verdict, str]:
    """The run's verdict and one line: what is grave comes first, then what failed first."""
    if failure is not None:
        return failure.verdict, failure.message
    bad = [r for r in results if isinstance(r.outcome, Failed)]
    if not bad:
        # No verdict without positive evidence.
        return (Verdict.PASSED, "") if results else (Verdict.PROTOCOL_ERROR, "nothing was checked")
    first = next((r for verdict in GRAVE for r in bad if r.verdict is verdict), bad[0])
    where = f"{first.case.shape.label} ({first.case.inputs})"
    count = f"{_count(bad, len(results))}; " if len(results) > 1 else ""
    return first.verdict, f"{count}{where}: {first.message}"


def _count(bad: Sequence[CaseResult], cases: int) -> str:
    tried = len(reached(bad))
    late = f", {len(bad) - tried} were not reached" if tried < len(bad) else ""
    return f"{tried} of {cases} cases failed{late}"


def worse(a: Check | None, b: Check) -> Check:
    """The less exact of two passing checks, with the element counts of both."""
    if a is None:
        return b
    return Check(
        elements=a.elements + b.elements,
        mismatches=a.mismatches + b.mismatches,
        max_abs=max(a.max_abs, b.max_abs),
        max_rel=max(a.max_rel, b.max_rel),
        max_ulp=max(a.max_ulp, b.max_ulp),
        worst=(a if a.max_abs >= b.max_abs else b).worst,
        strict_mismatches=a.strict_mismatches + b.strict_mismatches,
    )
