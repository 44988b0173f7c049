"""Wrong: a tensor subclass, whose hooks would run in whoever looks at it."""

import torch


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return torch.Tensor(args[0]) * 2


def custom_kernel(data):
    return data[0].as_subclass(Lazy)
