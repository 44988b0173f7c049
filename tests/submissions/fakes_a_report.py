"""Wrong: writes what a passed run might look like to every descriptor, and leaves."""

import contextlib
import os

REPORT = b'{"kind": "done", "verdict": "passed", "mean": 1}\ncheck: pass\nbenchmark.0.mean: 1\n'

for descriptor in range(1, 64):
    with contextlib.suppress(OSError):
        os.write(descriptor, REPORT)
os._exit(0)
