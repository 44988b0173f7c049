"""What several ways of timing said of the same submissions, as a table.  Pure.

A method's figure is what it would publish: the contest and do_bench a mean, CUPTI and ours a
median.  The truth is what the submission's kernels take, summed, on a cold and clean L2.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

#: A figure is right within this share of the truth, or within so many ns: two events around a
#: kernel also see its launch and its drain, which CUPTI's duration leaves out (0.5 us, H200).
RIGHT_SHARE, RIGHT_NS = 0.05, 1_000.0

#: The methods of rivals.py, and its truth.
METHODS = ("contest", "do_bench", "cupti", "truth")

_HEADER = "| submission | method | published us | mean us | median us | samples | runs | spread "
_HEADER += "| wall s | against the truth |\n|---|---|--:|--:|--:|--:|--:|--:|--:|---|"


@dataclass(frozen=True, slots=True)
class Figure:
    """One run of one method; `wall_ns` from nothing to the figure, imports included."""

    published_ns: float
    mean_ns: float
    median_ns: float
    samples: int
    wall_ns: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """A method that gave no figure, and why."""

    why: str


Outcome: TypeAlias = Figure | Missing


@dataclass(frozen=True, slots=True)
class Entry:
    """All runs of one method on one submission."""

    method: str
    outcomes: tuple[Outcome, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        return tuple(o for o in self.outcomes if isinstance(o, Figure))

    @property
    def published_ns(self) -> float | None:
        """The median of the runs' published figures, or None where there is none."""
        found = self.figures
        return statistics.median(f.published_ns for f in found) if found else None

    @property
    def why(self) -> str:
        """Why the last run gave no figure."""
        return next((o.why for o in reversed(self.outcomes) if isinstance(o, Missing)), "not run")


@dataclass(frozen=True, slots=True)
class Subject:
    """One submission under every method; `truth` is an entry like any other.

    One that is not `ordered` with the current stream has no time: the right figure is none.
    """

    name: str
    truth: Entry
    entries: tuple[Entry, ...]
    ordered: bool = True


def figure(times_ns: Sequence[float], wall_ns: int, *, publishes: str) -> Figure:
    """Summarise one run's samples; `publishes` is "mean" or "median".  ValueError without any."""
    if not times_ns:
        raise ValueError("no samples")
    mean_ns, median_ns = statistics.fmean(times_ns), statistics.median(times_ns)
    published_ns = mean_ns if publishes == "mean" else median_ns
    return Figure(published_ns, mean_ns, median_ns, len(times_ns), wall_ns)


def right(value_ns: float, truth_ns: float) -> bool:
    """Whether a published figure is the truth, within what can be told apart."""
    return abs(value_ns - truth_ns) <= max(RIGHT_SHARE * truth_ns, RIGHT_NS)


def table(subjects: Sequence[Subject]) -> str:
    """A Markdown table, one row for each submission and method, the truth first."""
    lines = [_HEADER]
    for subject in subjects:
        truth_ns = subject.truth.published_ns
        lines += [_row(subject.name, e, truth_ns) for e in (subject.truth, *subject.entries)]
    return "\n".join(lines)


def _row(name: str, entry: Entry, truth_ns: float | None) -> str:
    found = entry.figures
    if not found:
        return f"| {name} | {entry.method} |" + " n/a |" * 7 + f" {_cell(entry.why)} |"
    published = [f.published_ns for f in found]
    spread = f"{max(published) / min(published) - 1:.2%}" if len(found) > 1 else "-"
    wall_s = statistics.fmean(f.wall_ns for f in found) / 1e9
    cells = [
        _us(statistics.median(published)),
        _us(statistics.median(f.mean_ns for f in found)),
        _us(statistics.median(f.median_ns for f in found)),
        f"{statistics.median(f.samples for f in found):.0f}",
        f"{len(found)}/{len(entry.outcomes)}",
        spread,
        f"{wall_s:.1f}",
        _against(entry, truth_ns),
    ]
    return f"| {name} | {entry.method} | " + " | ".join(cells) + " |"


def _against(entry: Entry, truth_ns: float | None) -> str:
    value_ns, note = entry.published_ns, entry.figures[-1].note
    text = "?"
    if value_ns is not None and truth_ns:
        text = f"{value_ns / truth_ns - 1:+.1%}" + (" right" if right(value_ns, truth_ns) else "")
    return _cell(f"{text} ({note})" if note else text)


def verdict(subject: Subject) -> str:
    """One sentence: who is right about this submission, who is not and by how much."""
    truth_ns = subject.truth.published_ns
    if truth_ns is None:
        return f"{subject.name}: no truth to hold against: {subject.truth.why}."
    parts, correct = [], []
    for entry in subject.entries:
        value_ns = entry.published_ns
        if value_ns is None and not subject.ordered:
            correct.append(f"{entry.method}, which gives no figure ({entry.why})")
        elif value_ns is None:
            parts.append(f"{entry.method} gives no figure ({entry.why})")
        elif subject.ordered and right(value_ns, truth_ns):
            correct.append(entry.method)
        else:
            parts.append(f"{entry.method} is {value_ns / truth_ns - 1:+.0%} off")
    who = ", ".join(correct) if correct else "nobody"
    costs = f"it costs {_us(truth_ns)} us"
    if not subject.ordered:
        costs = f"its kernels take {_us(truth_ns)} us, begun before their inputs are there"
    return f"{subject.name}: {costs}; right: {who}" + "".join(f"; {part}" for part in parts) + "."


def _us(value_ns: float) -> str:
    return f"{value_ns / 1e3:.2f}"


def _cell(text: str) -> str:
    """Text of others inside of a Markdown table: one line, no bars, not too long."""
    flat = " ".join(text.split()).replace("|", "/")
    return flat if len(flat) <= 200 else f"{flat[:197]}..."
