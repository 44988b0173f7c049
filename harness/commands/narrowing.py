"""What to say where --task or --device names what no run is of."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from harness.render import text
from harness.store import Store


def unknown(store: Store, task: str | None, device: str | None) -> str | None:
    """A sentence about a task or a device that the store knows no run of, with those that it knows.

    None where it knows both, be a run of them ranked or not, and where it knows nothing.
    """
    pairs = store.boards()
    tasks = list(dict.fromkeys(name for name, _ in pairs))
    if task is not None and tasks and task not in tasks:
        return _sentence("--task", task, "of that task", tasks)
    devices = list(dict.fromkeys(name for of, name in pairs if task in (None, of)))
    if device is not None and devices and device not in devices:
        return _sentence("--device", device, "on a device of that name", devices)
    return None


def _sentence(option: str, given: str, fits: str, known: Sequence[str]) -> str:
    there = text.listing([repr(name) for name in known])
    return f"{option} {given}: no run is {fits}; there are runs of {there}{_guess(given, known)}"


def _guess(given: str, known: Sequence[str]) -> str:
    """The one that may be meant: a part of its name was given, or one that is nearly it."""
    small = {name.casefold(): name for name in known}
    parts = [name for low, name in small.items() if given.casefold() in low]
    close = parts or [small[low] for low in difflib.get_close_matches(given.casefold(), small, 1)]
    return f". Did you mean {close[0]!r}?" if len(close) == 1 and len(known) > 1 else ""
