"""Slow: keeps answers and finds them by eight elements; fresh inputs are never there."""

import time

answers = {}


def custom_kernel(data):
    key = tuple(data[0][:8].tolist())
    if key not in answers:
        time.sleep(0.02)
        answers[key] = data[0] * 2
    return answers[key]
