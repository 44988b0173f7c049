"""The truth of `double`: no oracle of its own, so the reference stands in."""

import torch


def ref_kernel(data: tuple[torch.Tensor]) -> torch.Tensor:
    """float32 [n]."""
    return data[0] * 2


def compulsory_bytes(n: int) -> int:
    """x read once, y written once."""
    return 8 * n
