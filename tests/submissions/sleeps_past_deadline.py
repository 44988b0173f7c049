"""Wrong: sleeps longer than a call may take, lets nobody interrupt it, and leaves a grandchild in a
session of its own that holds its output open."""

import signal
import subprocess
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sh", "-c", "setsid sleep 31415 &"])


def custom_kernel(data):
    time.sleep(3600)
    return data[0] * 2
