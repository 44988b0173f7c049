"""Right, and floods its output."""

import sys

for _ in range(200):
    sys.stdout.write("x" * 1_000_000)
print("\nthe last line", file=sys.stderr)


def custom_kernel(data):
    return data[0] * 2
