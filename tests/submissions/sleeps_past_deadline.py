"""Wrong: sleeps longer than a call may take, and lets nobody interrupt it."""

import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)


def custom_kernel(data):
    time.sleep(3600)
    return data[0] * 2
