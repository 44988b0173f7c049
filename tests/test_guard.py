"""A static scanner's advice is read with care, waited for ten seconds, and never a verdict."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness import guard

#: What a scanner of the same interface does; the real one is an extra that need not be there.
ECHO = "import sys\nsys.stdout.write(sys.stdin.read())\n"


@pytest.fixture
def scanner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the guard runs as its scanner."""
    path = tmp_path / "scanner_of_a_test.py"
    path.write_text(ECHO)
    monkeypatch.syspath_prepend(str(tmp_path))
    boot = guard._BOOT.replace(guard.MODULE, path.stem)
    monkeypatch.setattr(
        guard, "_BOOT", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{boot}"
    )
    monkeypatch.setattr(guard, "MODULE", path.stem)
    return path


def report(*hits: Mapping[str, object]) -> str:
    return json.dumps({"matched_patterns": hits, "should_filter": True})


def test_without_a_scanner_there_is_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MODULE", "no_scanner_of_this_name")
    assert guard.notes("x = 1") == ()


def test_each_finding_is_one_line(scanner: Path) -> None:
    hit = {"pattern": "TIMER", "severity": "high", "evidence": "two\n lines \x1b[31m"}
    assert guard.notes(report(hit)) == ("static scan: TIMER (high): two lines \x1b[31m",)
    assert guard.notes(report()) == ()


def test_findings_and_their_evidence_are_bounded(scanner: Path) -> None:
    hit = {"pattern": "P", "severity": "low", "evidence": "x" * 1000}
    found = guard.notes(report(*[hit] * 500))
    assert len(found) == guard.MAX_FINDINGS + 1
    assert "480 more" in found[-1]
    assert max(map(len, found)) < 400


@pytest.mark.parametrize(
    "answer", ["", "null", "[]", "{}", '{"matched_patterns": [1]}', "[" * 50_000, "\udc80"]
)
def test_an_answer_that_is_none_is_said_to_be_so(scanner: Path, answer: str) -> None:
    assert guard.notes(answer) == ("static scan: failed on this text",)


def test_a_scan_that_hangs_is_given_up(scanner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanner.write_text("import time\ntime.sleep(300)\n")
    monkeypatch.setattr(guard, "TIME_NS", 1_000_000_000)
    begin = time.monotonic()
    assert guard.notes("x") == ("static scan: not finished within 1 s",)
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize(
    "hostile",
    [
        "x = 'x' * (4 << 30)",
        "import os\nos.fork()",
        "open({here!r}, 'w').write('x')",
        "import sys\nsys.stdout.write('x' * (64 << 20))",
        "import os\nos.abort()",
        "print(__import__('os').environ)",
    ],
    ids=("memory", "fork", "file", "flood", "abort", "environment"),
)
def test_a_scanner_that_was_taken_over_has_nothing_to_use(scanner: Path, hostile: str) -> None:
    written = scanner.with_name("written")
    scanner.write_text(hostile.format(here=str(written)))
    assert guard.notes("x") == ("static scan: failed on this text",)
    assert not written.exists() or not written.read_text()


def test_the_real_scanner_advises_on_a_known_attack() -> None:
    pytest.importorskip("kernelguard", reason="the extra [guard] is not installed")
    zoo = Path(__file__).parent / "exploits/zoo"
    found = guard.notes((zoo / "a1_patch_timer.py").read_text())
    assert any("SYS_MODULES" in line for line in found), found
    assert sys.executable not in " ".join(found)
