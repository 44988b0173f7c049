"""Wrong: right numbers, in the input itself."""


def custom_kernel(data):
    return data[0].mul_(2)
