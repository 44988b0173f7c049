"""Wrong: answers once, then leaves with the exit code of success."""

import os

calls = []


def custom_kernel(data):
    calls.append(1)
    if len(calls) == 2:
        os._exit(0)
    return data[0] * 2
