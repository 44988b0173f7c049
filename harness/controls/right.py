"""Control: right; must pass, or everything else proves nothing."""


def custom_kernel(data):
    return data[0] * 2
