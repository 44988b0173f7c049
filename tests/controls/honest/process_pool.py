"""A pool of processes at import, as a compiler's driver has, used once and closed."""

import multiprocessing


def square(number):
    return number * number


with multiprocessing.get_context("fork").Pool(2) as _pool:
    assert _pool.map(square, range(4)) == [0, 1, 4, 9]


def custom_kernel(data):
    return data[0] * 2
