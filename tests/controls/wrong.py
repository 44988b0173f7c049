"""The wrong control: if this passes, nothing was checked."""


def custom_kernel(data):
    out = data[0] * 2
    out[-1] += 1
    return out
