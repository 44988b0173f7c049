"""Wrong: right numbers in twice the precision."""


def custom_kernel(data):
    return data[0].double() * 2
