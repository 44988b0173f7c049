"""Wrong: right, and then scribbles over what it was given."""


def custom_kernel(data):
    y = data[0] * 2
    data[0].fill_(7)
    return y
