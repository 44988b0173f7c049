"""Runs in a file that another machine can check: what was measured, with what it follows from.

A bundle is one JSON document with whole runs, raw samples, environment, source, revealed seeds, and
a digest over all of it.  The digest shows damage; only a signature shows who vouches for it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import harness
from harness import codec, leaderboard, names, samples, stats
from harness.errors import UsageError
from harness.model import (
    Block,
    CaseKind,
    CaseResult,
    Check,
    Clock,
    Doubt,
    Mode,
    Passed,
    Run,
    Shape,
    Stop,
    Timing,
    Verdict,
    reduced_precision,
    without_floor,
)
from harness.timing import FLOOR_SHARE, Estimate, doubts_of, summarise

FORMAT = "kernel-harness bundle"
SCHEMA = 1
#: A run with every sample takes 50 to 150 kB; this is some thousands of them.
MAX_BYTES = 1 << 29

#: The year 2262, where nanoseconds leave 63 bits.
_LATEST_NS = (1 << 63) - 1
#: What clocks of two machines may differ: the newest run of an entry is the one that stands.
_AHEAD_NS = 300_000_000_000
#: Twelve hexadecimal digits, as judge.py makes them: any other could be a submission's name.
_ID = re.compile(r"[0-9a-f]{12}")
_KINDS = ("cpu", "cuda")
#: No call that writes an answer takes less: by a host's clock it goes to another process and back
#: (0.3 ms measured), on a GPU it launches a kernel (1.8 us on an H200).
_LEAST_NS = {Clock.HOST: 5_000.0, Clock.WORKER: 500.0, Clock.JUDGE: 500.0}
#: No clock that times are read from steps by more.
_COARSEST_NS = 1000.0
_BESIDE_THE_CENTRE = ("mean_ns", "std_ns", "best_ns", "worst_ns", "host_median_ns")
#: Arithmetic repeated on another machine differs by rounding only.
_SAME = 1e-9
#: A process's offset comes back from medians, hence not to the last digit.
_ROUNDED = 1e-3


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle holds.  `signature` is an SSH signature of `digest` in armour, or empty."""

    runs: tuple[Run, ...]
    harness_version: str
    digest: str
    signature: str = ""


def make(runs: Sequence[Run], *, with_source: bool) -> Bundle:
    """A bundle of `runs`; without their source they can be verified but not replayed."""
    if not with_source:
        runs = [replace(run, submission=replace(run.submission, source="")) for run in runs]
    content = _content(runs, harness.__version__)
    return Bundle(tuple(runs), harness.__version__, _digest(content))


def dumps(bundle: Bundle) -> bytes:
    """The file's content: ASCII, one line."""
    content = _content(bundle.runs, bundle.harness_version)
    sealed = {**content, "digest": bundle.digest, "signature": bundle.signature}
    return _canonical(sealed) + b"\n"


def loads(data: bytes, where: str) -> Bundle:
    """Read a bundle, trusting nothing in it.  Raises UsageError for what is none, or is damaged."""
    if data.lstrip()[:1] != b"{":
        raise UsageError(f"{where}: is no bundle; `harness export FILE` makes one")
    try:
        document = json.loads(data, parse_constant=_refuse)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise UsageError(f"{where}: is no bundle; `harness export FILE` makes one")
        if document.get("schema") != SCHEMA:
            raise UsageError(
                f"{where}: a bundle of schema {document.get('schema')!r}, this harness reads "
                f"{SCHEMA}; use the harness that made it, or a newer one"
            )
        digest, signature = document.pop("digest", ""), document.pop("signature", "")
        version = document.get("harness")
        if not all(isinstance(text, str) for text in (digest, signature, version)):
            raise UsageError(f"{where}: the bundle is damaged; get it again")
        if _digest(document) != digest:
            raise UsageError(
                f"{where}: its digest does not fit its content: it was changed or damaged"
            )
        runs = tuple(codec.decode(Run, run) for run in document["runs"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{where}: the bundle is damaged ({error})") from None
    if not runs:
        raise UsageError(f"{where}: the bundle holds no run, so nothing can be said of it")
    if not all(_ID.fullmatch(run.id) for run in runs):
        raise UsageError(f"{where}: the bundle is damaged (a run's id is none)")
    if len({run.id for run in runs}) != len(runs):
        raise UsageError(f"{where}: the bundle is damaged (it holds a run twice)")
    return Bundle(runs, str(version), digest, signature)


def has_its_source(run: Run) -> bool:
    """Whether its source, where it came with one, is the one that its sha256 names."""
    source = run.submission.source
    return not source or _sha256(source) == run.submission.sha256


def problems(run: Run) -> tuple[str, ...]:
    """What does not fit together in a run: source, times, score, verdict.  Empty when sound.

    Whether its cases are those of its task, `planned.departures` says, where the task is at hand.
    """
    found = _name_problems(run)
    if not has_its_source(run):
        found.append("its source is not the one that its sha256 names")
    if not _is_key(run.secret_seed):
        found.append("it reveals no secret seed")
    failed = [case for case in run.cases if case.verdict is not Verdict.PASSED]
    if run.verdict is Verdict.PASSED and (failed or not run.cases):
        found.append(f"its verdict is passed, but {len(failed)} of {len(run.cases)} cases failed")
    if not 0 < run.created_ns < _LATEST_NS or not 0 <= run.duration_ns < _LATEST_NS:
        found.append("it was made at no time, or took absurdly long")
    elif run.created_ns > time.time_ns() + _AHEAD_NS:
        found.append("it is dated in the future")
    if (run.device.kind == "cpu") != (run.clock is Clock.HOST) or run.device.kind not in _KINDS:
        found.append("its device and its clock do not belong together")
    found += _case_problems(run)
    return (*found, *_score_problems(run))


def _name_problems(run: Run) -> list[str]:
    """Names that a board could not show as they are, or that look like another's."""
    said = {
        "submission's name": run.submission.name,
        "author": run.submission.author,
        "task's name": run.task,
        "device's name": run.device.name,
    }
    return [f"its {what} {flaw}" for what, name in said.items() if (flaw := names.flaw(name))]


def _case_problems(run: Run) -> list[str]:
    """What is wrong with single cases; the same timed case twice would count twice."""
    found: list[str] = []
    timed: set[Shape] = set()
    spent_ns = called_ns = 0
    for case in run.cases:
        label = case.case.shape.label
        timing = case.timing
        if isinstance(case.outcome, Passed):
            if not _compared(case.outcome.check):
                found.append(f"{label}: it passed, but its check does not say so")
            if (case.case.kind is CaseKind.BENCHMARK) != (timing is not None):
                found.append(f"{label}: what is timed is no benchmark, or the other way round")
        if timing is None:
            continue
        if case.case.shape in timed:
            found.append(f"{label}: it is timed twice")
        timed.add(case.case.shape)
        found += [f"{label}: {one}" for one in _timing_problems(timing, run.clock)]
        if run.clock is Clock.HOST and not _of_a_processor(timing):
            found.append(f"{label}: its time holds what only a GPU's has")
        if run.clock is Clock.HOST and not all(map(_encloses, timing.blocks)):
            found.append(f"{label}: a call took longer than the judge's clock ran")
        spent_ns += sum(max(0, ns) for block in timing.blocks for ns in block.window_ns)
        called_ns += sum(max(0, ns) for block in timing.blocks for ns in block.host_ns)
        silent = [str(doubt) for doubt in doubts_of(timing) if doubt not in run.doubts]
        if silent:
            found.append(f"{label}: its samples say {', '.join(silent)}, and it does not")
    if max(spent_ns, called_ns) > run.duration_ns:
        found.append("its samples took longer than the whole run")
    if reduced_precision(run.cases) and Doubt.REDUCED_PRECISION not in run.doubts:
        found.append("its checks say reduced precision, and it does not")
    if without_floor(run.clock, run.cases) and Doubt.NO_FLOOR not in run.doubts:
        found.append("its times were held against no floor, and it does not say so")
    return found


def _compared(check: Check) -> bool:
    """Whether a check that passed compared something, and its numbers are some."""
    sizes = (check.max_abs, check.max_rel, check.max_ulp)
    return (
        check.elements > 0
        and check.mismatches == 0
        and 0 <= check.strict_mismatches <= check.elements
        and all(math.isfinite(size) and size >= 0 for size in sizes)
    )


def _of_a_processor(timing: Timing) -> bool:
    """Whether a time holds no more than a CPU's: single calls by one clock, and no floor."""
    return (
        timing.judge_ns is None
        and timing.judge_most_ns is None
        and timing.floor_ns is None
        and all(block.calls == 1 for block in timing.blocks)
    )


def _encloses(block: Block) -> bool:
    """Whether a CPU's windows hold what the worker says that it spent in the calls in them."""
    pairs = zip(block.window_ns, block.host_ns, strict=False)  # of other lengths: told elsewhere
    return all(host_ns <= window_ns for window_ns, host_ns in pairs)


def _is_measured(block: Block) -> bool:
    """Whether its numbers can come from clocks: a judge's bracket may be below its overhead."""
    return block.calls >= 1 and min((*block.claimed_ns, *block.host_ns), default=0) >= 0


def _score_problems(run: Run) -> list[str]:
    timings = [case.timing for case in run.cases if case.timing is not None]
    if run.score_ns is None:
        return []
    if run.verdict is not Verdict.PASSED or run.custom_shapes or run.mode is Mode.TEST:
        return ["it has a score, and may have none"]
    medians = [timing.median_ns for timing in timings]
    if not medians or not all(map(leaderboard.is_time, [run.score_ns, *medians])):
        return ["its score is not made of times"]
    if not _same(run.score_ns, stats.geometric_mean(medians)):
        return ["its score is not the geometric mean of its times"]
    return []


def _timing_problems(timing: Timing, clock: Clock) -> list[str]:
    summary = (timing.low_ns, timing.median_ns, timing.high_ns)
    if not all(map(leaderboard.is_time, summary)) or list(summary) != sorted(summary):
        return ["its interval is none"]
    if not all(
        len(block.window_ns)
        == len(block.claimed_ns)
        == (len(block.host_ns) or len(block.window_ns))
        for block in timing.blocks
    ):
        return ["its blocks lack samples"]
    if not all(map(_is_measured, timing.blocks)):
        return ["its blocks hold times that no clock reads"]
    estimates = samples.estimates(timing, clock)
    if estimates is None:
        return ["its raw samples and its published medians do not belong together"]
    if not _same(samples.centre_of(timing.process_medians_ns), timing.median_ns):
        return ["its time is not the centre of its processes' medians, as harness 0.2 has it"]
    found = []
    if not _summarises(timing, estimates):
        found.append("its mean, deviation, extremes or counts are not those of its samples")
    if not _follow(timing, clock):
        found.append("a process's published median does not follow from its samples")
    blocks = [one.samples_ns for one in estimates]
    stated = stats.half_width(stats.Interval(timing.median_ns, timing.low_ns, timing.high_ns))
    if stated < _half_width(blocks) * (1 - _ROUNDED):
        found.append("its interval is narrower than its samples allow")
    if stated > _half_width(blocks, tick=_COARSEST_NS) * (1 + _ROUNDED):
        found.append("its interval is wider than its samples make it")
    if timing.stop is Stop.PRECISION and _half_width(blocks, between=0.0) > stats.NOISY_SHARE:
        found.append("its samples are not as precise as its stop says")
    if not _bounded(timing):
        found.append("the judge's bounds do not follow from its windows")
    if timing.floor_ns is not None:
        if not leaderboard.is_time(timing.floor_ns):
            found.append("its floor is no time")
        elif timing.median_ns < FLOOR_SHARE * timing.floor_ns:
            found.append("it is faster than its device's floor")
    if timing.median_ns < _LEAST_NS[clock]:
        found.append("it is shorter than a call that does nothing")
    return found


def _half_width(blocks: Sequence[Sequence[float]], **assumed: float) -> float:
    return stats.half_width(stats.process_interval(blocks, **assumed))


def _bounded(timing: Timing) -> bool:
    """Whether the judge's own bounds are what its windows say, and in order; or there are none."""
    if timing.judge_ns is None:
        return timing.judge_most_ns is None
    leasts = samples.leasts(timing)
    return (
        bool(leasts)
        and abs(stats.median(leasts) - timing.judge_ns) <= 1.0  # windows are whole ns
        and timing.judge_ns <= (timing.judge_most_ns or 0.0) < leaderboard.LONGEST_NS
    )


def _follow(timing: Timing, clock: Clock) -> bool:
    """Whether each process's published median is what its own samples allow."""
    for raw, judged, published in zip(
        samples.raw(timing, clock), samples.judged(timing), timing.process_medians_ns, strict=True
    ):
        if clock is Clock.HOST:
            if not _same(stats.median(raw), published):
                return False
            continue
        # What the audit allows a claim to differ from the judge's clock (calibration.audit).
        allowed = 2 * samples.OFFSET_NS + samples.OFFSET_SHARE * published
        if abs(stats.median(judged) - published) > allowed:
            return False
        # A call that waits for the host is timed by the judge's clock, whatever was claimed.
        off = abs(stats.median(raw) - published)
        if "judge clock" not in timing.classes and off > samples.OFFSET_NS:
            return False
    return True


def _summarises(timing: Timing, estimates: Sequence[Estimate]) -> bool:
    """Whether what is said of the samples beside their centre is so."""
    again = summarise(estimates, timing.blocks, stop=timing.stop)
    if (timing.samples, timing.processes) != (again.samples, again.processes):
        return False
    pairs = [(getattr(timing, name), getattr(again, name)) for name in _BESIDE_THE_CENTRE]
    return all(
        (a is None) == (b is None)
        and math.isclose(a or 0.0, b or 0.0, rel_tol=_ROUNDED, abs_tol=1.0)
        for a, b in pairs
    )


def replayed(old: Run, new: Run) -> tuple[tuple[CaseResult, CaseResult | None], ...]:
    """Each case of a run beside the same case of its replay, None where that has none."""
    again = {(c.case.kind, c.case.shape, c.case.inputs): c for c in new.cases}
    return tuple((c, again.get((c.case.kind, c.case.shape, c.case.inputs))) for c in old.cases)


def _content(runs: Sequence[Run], version: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "harness": version,
        "runs": [codec.encode(run) for run in runs],
    }


def _canonical(content: dict[str, Any]) -> bytes:
    """One spelling of a document: the digest is over it, so that it survives reformatting."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _digest(content: dict[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(_canonical(content)).hexdigest()


def _sha256(source: str) -> str:
    """The name of a source; "" for a text that no file can hold."""
    try:
        return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()
    except UnicodeEncodeError:
        return ""


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_SAME)


def _is_key(text: str) -> bool:
    """128 bits, as prepare.Seeds draws them."""
    return len(text) == 32 and all(c in "0123456789abcdef" for c in text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
