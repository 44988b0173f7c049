"""What a GPU reads at best is known better with every run, and never worse."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import bandwidth


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


@pytest.mark.parametrize("text", ["", "{", "[]", '{"H200": "x"}', '{"H200": -1}', '{"H200": NaN}'])
def test_a_file_that_says_nothing_is_written_anew(text: str, home: Path) -> None:
    assert bandwidth.best("other", 1.0, keep=True) == 1.0
    (file,) = home.rglob("bandwidth.json")
    file.write_text(text)
    assert bandwidth.best("H200", 2e12, keep=True) == 2e12
    assert bandwidth.best("H200", 1e12, keep=True) == 2e12


def test_a_home_that_cannot_be_written_does_no_harm(home: Path) -> None:
    (home / "kernel-harness").write_text("in the way")
    assert bandwidth.best("H200", 2e12, keep=True) == 2e12
    assert bandwidth.best("H200", 1e12, keep=True) == 1e12
