"""Wrong: makes zero of its inputs, so that a reference computed from them would agree with zero."""


def custom_kernel(data):
    return data[0].zero_().clone()
