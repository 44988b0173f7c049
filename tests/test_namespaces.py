"""Each wall of the sandbox stands by itself, also where another one would hold too.

Root's worker is another user, which alone stops signals and writes; a user's own worker has only
the namespaces and the mounts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from harness.model import Isolation
from tests.workers import make_plan, require, running, scratch_folder

CODE = """
import json, os, socket
names = ("pid", "net", "ipc", "uts", "mnt")
found = {"namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in names}}
with open("/proc/self/mounts") as file:
    found["mounts"] = {line.split()[1]: line.split()[3].split(",") for line in file}
found["parent"] = os.getppid()
found["processes"] = [int(name) for name in os.listdir("/proc") if name.isdigit()]
socket.socket(fileno=3).sendall(json.dumps(found).encode())
"""


@pytest.fixture(scope="module")
def inside() -> Iterator[dict[str, dict[str, str]]]:
    """What a worker in a sandbox finds around it."""
    require(Isolation.SANDBOX)
    with scratch_folder() as scratch:
        scratch.chmod(0o755)
        with running(make_plan(scratch, CODE), Isolation.SANDBOX) as (_, channel):
            yield json.loads(channel.recv(1 << 16))


@pytest.mark.parametrize("name", ["pid", "net", "ipc", "uts", "mnt"])
def test_a_sandbox_has_a_namespace_of_its_own(inside: dict[str, dict[str, str]], name: str) -> None:
    assert inside["namespaces"][name] != os.readlink(f"/proc/self/ns/{name}")


@pytest.mark.parametrize("path", ["/", "/dev", "/usr"])
def test_a_sandbox_cannot_write_to_the_system(inside: dict[str, dict[str, str]], path: str) -> None:
    assert "ro" in inside["mounts"][path]


def test_only_the_sandboxes_own_processes_are_seen(inside: dict[str, list[int]]) -> None:
    assert len(inside["processes"]) <= 3
    assert os.getpid() not in inside["processes"] or os.getpid() < 4
