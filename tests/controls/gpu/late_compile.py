"""The first call of each size takes two seconds, as a compiler would."""

import time

_compiled = set()


def custom_kernel(data):
    if data[0].numel() not in _compiled:
        time.sleep(2)
        _compiled.add(data[0].numel())
    return data[0] * 2
