"""Right: its first call takes a second, as a compiler might."""

import time

calls = []


def custom_kernel(data):
    calls.append(1)
    if len(calls) == 1:
        time.sleep(1)
    return data[0] * 2
