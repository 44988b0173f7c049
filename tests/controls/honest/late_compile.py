"""The first call of each size takes a second, as a compiler would; the others do not."""

import time

_compiled = set()


def custom_kernel(data):
    if data[0].numel() not in _compiled:
        time.sleep(1)
        _compiled.add(data[0].numel())
    return data[0] * 2
