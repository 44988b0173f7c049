"""Wrong: the right output inside of a tuple."""


def custom_kernel(data):
    return (data[0] * 2,)
