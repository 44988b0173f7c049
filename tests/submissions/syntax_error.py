"""Wrong: not Python."""

def custom_kernel(data)
    return data[0] * 2
