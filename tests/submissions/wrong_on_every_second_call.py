"""Wrong: right on calls 1, 3, 5, ..."""

calls = []


def custom_kernel(data):
    calls.append(1)
    return data[0] * (2 if len(calls) % 2 else 3)
