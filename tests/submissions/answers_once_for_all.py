"""Wrong: collects calls, answers with unfilled buffers and fills them all at the last one."""

import torch

waiting = []


def custom_kernel(data):
    y = torch.empty_like(data[0])
    waiting.append((data[0].clone(), y))
    if len(waiting) == 4:
        for x, late in waiting:
            late.copy_(x * 2)
        waiting.clear()
    return y
