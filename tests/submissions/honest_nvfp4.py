"""Right: what the files that get the format wrong are compared with."""

import torch

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def numbers(packed, scales):
    codes = packed.view(torch.uint8)
    nibbles = torch.stack([codes & 15, codes >> 4], dim=2)
    values = E2M1.to(packed.device)[nibbles.flatten(1).int()]
    scales = scales.float()
    return values * scales.repeat_interleave(16, dim=1)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    for i in range(a.shape[2]):
        vector = numbers(b[:1, :, i], sfb[:1, :, i])
        c[:, 0, i] = (numbers(a[:, :, i], sfa[:, :, i]) @ vector[0]).half()
    return c
