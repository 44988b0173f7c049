"""Control: ends its process with exit code 0 (M5), which proves nothing."""

import os


def custom_kernel(data):
    os._exit(0)
