"""What is left of a judge is ended; what was the caller's own is not touched."""

from __future__ import annotations

import os
import subprocess
import time

from harness import confine, pool


def test_orphans_are_ended_and_the_callers_own_children_are_spared() -> None:
    confine.become_subreaper()
    own = subprocess.Popen(["sleep", "60"])
    try:
        before = pool._children()
        assert own.pid in before
        parent = subprocess.run(
            ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True
        )
        orphan = int(parent.stdout)
        assert orphan in pool._children() - before

        pool._sweep(before)

        assert own.poll() is None
        assert not _alive(orphan)
    finally:
        own.kill()
        own.wait()


def test_with_nothing_left_behind_no_time_is_lost() -> None:
    begin = time.monotonic()
    pool._sweep(pool._children())
    assert time.monotonic() - begin < 1.0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
