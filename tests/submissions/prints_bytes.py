"""Right, and prints what is no UTF-8 and would clear a terminal."""

import sys

sys.stdout.buffer.write(b"\xff\xfe\x00\x1b[2J\n")
sys.stdout.flush()


def custom_kernel(data):
    return data[0] * 2
