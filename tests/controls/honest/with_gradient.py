"""A result that remembers how it was made."""


def custom_kernel(data):
    return data[0].clone().requires_grad_() * 2
