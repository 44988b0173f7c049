"""The strictest claim there is about an output, for whoever calls a submission by itself."""

from __future__ import annotations

import torch

from harness.check import examine
from harness.model import Passed, Tolerance
from reference import exact, strict_slack


def assert_strict(data: tuple[torch.Tensor, ...], got: torch.Tensor, family: str) -> None:
    """Within the contest's tolerance and within the strict tier, everywhere."""
    truth = exact(data)
    outcome = examine(
        got,
        truth.expected,
        terms=truth.terms,
        exact=truth.exact,
        tolerance=Tolerance(1e-3, 1e-3),
        slack=strict_slack(family),
    )
    assert isinstance(outcome, Passed), outcome
    assert outcome.check.strict_mismatches == 0, outcome
