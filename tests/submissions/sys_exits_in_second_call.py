"""Wrong: answers once, then leaves with the exit code of success."""

import sys

calls = []


def custom_kernel(data):
    calls.append(1)
    if len(calls) == 2:
        sys.exit(0)
    return data[0] * 2
