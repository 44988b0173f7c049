"""Memory of the judge's own: to be refused some is better than to be ended by the kernel."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

from harness.errors import DeviceError

#: Of what is free, how much one call's inputs and truth may take: they are copied into buffers that
#: the worker shares, and its outputs come back.
SHARE = 0.4
#: What torch (2.13, CPU) says of an allocation that was refused.
_REFUSED = "can't allocate memory"


@contextlib.contextmanager
def enough_for(what: str) -> Iterator[None]:
    """Raise DeviceError where more memory is asked for than this machine has to give.

    A limit on this process's data for as long as the context lasts; nothing may be started in it,
    which would inherit it.  Does nothing where the kernel does not say what is free.
    """
    free = _field("/proc/meminfo", "MemAvailable:")
    used = _field("/proc/self/status", "VmData:")
    if not free or not used:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = (used + round(SHARE * free), soft, hard)
    limit = min(bound for bound in bounds if bound != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and _REFUSED not in str(error):
            raise
        raise DeviceError(
            f"{what}: its inputs and their truth need more memory than this machine has "
            f"({free / 2**30:.1f} GiB free); a smaller --shape needs less"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _field(path: str, name: str) -> int:
    """Bytes that a line of the kernel's gives in kB; 0 where it does not."""
    with contextlib.suppress(OSError):
        for line in Path(path).read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) << 10
    return 0
