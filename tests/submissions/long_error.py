"""Wrong: an error of 20,000 characters whose reason is in its last line."""


def custom_kernel(data):
    lines = "x" * 20_000 + "\n" + "short\n" * 1000 + "the reason: no such register"
    raise RuntimeError(lines)
