"""Wrong: answers once, then is killed."""

import os
import signal

calls = []


def custom_kernel(data):
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return data[0] * 2
