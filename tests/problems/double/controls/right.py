"""Right on every input: the gate's control."""

import torch


def custom_kernel(data: tuple[torch.Tensor]) -> torch.Tensor:
    return data[0] * 2
