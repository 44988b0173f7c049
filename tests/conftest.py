"""What holds for every test process."""

from __future__ import annotations

import os

# Several processes test at once, and threads of torch that spin starve each other: the tests of
# the oracle took 22 s on two cores with two threads each, 6 s with one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
