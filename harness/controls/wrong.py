"""Control: one element of many is off by one percent; must be found in every call."""


def custom_kernel(data):
    y = data[0] * 2
    y[-1] *= 1.01
    return y
