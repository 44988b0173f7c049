"""Right, and leaves a child, a grandchild in a session of its own, behind."""

import subprocess

subprocess.Popen(["sleep", "31415"])
subprocess.Popen(["sh", "-c", "setsid sleep 31415 &"])


def custom_kernel(data):
    return data[0] * 2
