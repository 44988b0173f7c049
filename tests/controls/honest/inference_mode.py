"""A result made in inference mode, which may not be written in place outside of it."""

import torch


@torch.inference_mode()
def custom_kernel(data):
    return data[0] * 2
