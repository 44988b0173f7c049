"""Wrong: leaves a grandchild that holds its output open, and never answers."""

import subprocess

subprocess.Popen(["sh", "-c", "setsid sleep 31415 &"])


def custom_kernel(data):
    while True:
        pass
