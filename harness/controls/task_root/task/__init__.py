"""y = 2 x: input (x,), output y, both float32 [n]."""

import torch

input_t = tuple[torch.Tensor]
output_t = torch.Tensor


def generate_input(
    n: int, seed: int, *, inputs: str = "competition", device: str = "cpu"
) -> tuple[torch.Tensor]:
    """Uniform numbers in [0, 1), or in [-1, 1) when `inputs` is "signed"."""
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.rand(n, generator=generator, device=device)
    return (x * 2 - 1 if inputs == "signed" else x,)
