"""What a GPU reads at best is known better with every run, and never worse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.devices import bandwidth

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_a_measurement_beside_strangers_is_forgotten_and_a_good_one_is_not() -> None:
    assert bandwidth.best("H200", 0.6e12, keep=True) == 0.6e12
    assert bandwidth.best("H200", 4.2e12, keep=True) == 4.2e12
    assert bandwidth.best("H200", 0.6e12, keep=True) == 4.2e12
    assert bandwidth.best("B200", 7.0e12, keep=True) == 7.0e12
    assert bandwidth.best("H200", 1.0e12, keep=True) == 4.2e12


def test_a_read_that_was_too_short_is_not_kept() -> None:
    assert bandwidth.best("H200", 9e12, keep=False) == 9e12
    assert bandwidth.best("H200", 1e12, keep=True) == 1e12


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"H200": "x"}', '{"H200": -1}', '{"H200": NaN}', '{"H200": Infinity}',
        '{"H200": 1e300}', '{"H200": 1' + 400 * "0" + "}", 5000 * "[",
    ],
    ids=range(10),
)  # fmt: skip
def test_a_file_that_says_nothing_is_written_anew(text: str, home: Path) -> None:
    assert bandwidth.best("other", 1.0, keep=True) == 1.0
    (file,) = home.rglob("bandwidth.json")
    file.write_text(text)
    assert bandwidth.best("H200", 2e12, keep=True) == 2e12
    assert bandwidth.best("H200", 1e12, keep=True) == 2e12


def test_of_several_that_measure_at_once_the_best_is_kept(home: Path) -> None:
    code = (
        "import sys; from harness.devices import bandwidth\n"
        "for i in range(40): bandwidth.best(f'{sys.argv[1]} {i}', 1e12, keep=True)"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, name], cwd=ROOT) for name in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    assert len(json.loads(next(home.rglob("bandwidth.json")).read_text())) == 80


def test_a_home_that_cannot_be_written_does_no_harm(home: Path) -> None:
    (home / "kernel-harness").write_text("in the way")
    assert bandwidth.best("H200", 2e12, keep=True) == 2e12
    assert bandwidth.best("H200", 1e12, keep=True) == 1e12
