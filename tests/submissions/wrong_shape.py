"""Wrong: right numbers in a shape that only broadcasts to the right one."""


def custom_kernel(data):
    return (data[0] * 2)[None]
