"""The work is numpy's, on the tensor's own memory."""

import numpy
import torch


def custom_kernel(data):
    return torch.from_numpy(numpy.multiply(data[0].numpy(), numpy.float32(2)))
