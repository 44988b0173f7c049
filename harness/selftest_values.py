"""What a self-test found; values only, so that the command line can show it without torch."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model import DeviceInfo


@dataclass(frozen=True, slots=True)
class SelfTestLine:
    """One claim about this machine's clock: what was known, what was read, and whether it fits."""

    name: str
    known_ns: float | None
    read_ns: float
    allowed_ns: float | None
    ok: bool


@dataclass(frozen=True, slots=True)
class SelfTestReport:
    """All lines, and the constants that are stated beside every published time."""

    device: DeviceInfo
    isolation: str
    constants: tuple[tuple[str, float], ...]
    lines: tuple[SelfTestLine, ...]

    @property
    def ok(self) -> bool:
        """Whether every claim held, and there was one."""
        return bool(self.lines) and all(line.ok for line in self.lines)
