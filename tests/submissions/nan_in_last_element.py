"""Wrong: NaN, which no comparison finds too large, in one place."""


def custom_kernel(data):
    y = data[0] * 2
    y[-1] = float("nan")
    return y
