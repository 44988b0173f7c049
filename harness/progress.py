"""What a judge says while it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One step: the stage, what it works on, and how far it is."""

    stage: str
    subject: str = ""
    done: int = 0
    total: int | None = None
    process: int | None = None
    processes: int | None = None
    latest_ns: int | None = None  # the last sample, as the judge's clock saw it
    left_ns: int | None = None  # of this stage's budget
