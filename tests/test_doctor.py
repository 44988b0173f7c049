"""`harness doctor` tells what is there and, of what is not, how to get it."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch

from harness import cli, doctor
from harness.doctor import Finding
from harness.model import Isolation
from harness.store import open_store
from tests.fakes import make_run

ROOT = Path(__file__).parents[1]
AREAS = ["system", "device", "compiler", "isolation", "store", "clock"]


@pytest.mark.timeout(300)
def test_the_document_has_every_area_and_what_is_missing_has_a_remedy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["doctor", "--json", "--db", f"sqlite:///{tmp_path}/x.db"]) == 0
    findings = json.loads(capfd.readouterr().out)["findings"]
    assert list(dict.fromkeys(f["area"] for f in findings)) == AREAS
    assert [f for f in findings if f["ok"] is False and not f["remedy"]] == []
    names = {f["name"] for f in findings}
    assert {"torch", "cpu", "nvcc", "g++", "ninja", "triton", *Isolation, "results"} <= names
    assert list(tmp_path.iterdir()) == []  # it only looks


@pytest.mark.timeout(300)
def test_the_screen_ends_with_what_a_run_does_here(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.run(["doctor", "--db", f"sqlite:///{tmp_path}/x.db"]) == 0
    said = capfd.readouterr().out
    assert "`harness run` checks and times here on the CPU" in said
    assert "\x1b" not in said


def remedy(findings: Sequence[Finding], name: str) -> str:
    (found,) = [f for f in findings if f.name == name]
    assert found.ok is False
    return found.remedy


def test_without_a_gpu_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    why = doctor._without_cuda
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert why("13.0") == (
        "no NVIDIA driver on this machine",
        "check here on the CPU with --device cpu, and time on a machine with a GPU",
    )
    monkeypatch.setattr(Path, "exists", lambda self: True)
    assert why(None)[1] == "install a CUDA build of torch: pip install torch"
    assert "does not get on with this driver" in why("13.0")[0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert why("13.0") == ("CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES")


def test_with_a_gpu_its_facts_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness import devices

    fake = ModuleType("harness.devices.survey")
    facts = [("name", "NVIDIA H200", (True, "")), ("shared", "MPS is running", (False, "quit"))]
    fake.survey = lambda index: [_fact(*fact) for fact in facts]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "harness.devices.survey", fake)
    monkeypatch.setattr(devices, "survey", fake, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    found = list(doctor._devices())
    assert ("cuda:0 name", "NVIDIA H200") in {(f.name, f.value) for f in found}
    assert remedy(found, "cuda:0 shared") == "quit"


def _fact(name: str, value: str, judgement: tuple[bool, str]) -> object:
    class Fact:
        pass

    fact = Fact()
    fact.name, fact.value, fact.judgement = name, value, judgement  # type: ignore[attr-defined]
    return fact


def test_a_missing_tool_names_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    monkeypatch.setattr(doctor, "cuda_home", lambda: None)
    found = list(doctor._compilers())
    assert "CUDA toolkit" in remedy(found, "nvcc")
    assert "apt-get install g++" in remedy(found, "g++")
    assert "pip install ninja" in remedy(found, "ninja")


def test_the_store_is_counted_announced_or_explained(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/some.db"
    (found,) = doctor._store(url)
    assert found.ok and "the first run makes it" in found.value
    with open_store(url, create=True) as store:
        store.add(make_run())
    (found,) = doctor._store(url)
    assert found.ok and found.value.endswith(": 1 runs")
    (tmp_path / "broken.db").write_bytes(b"no database" * 1000)
    (found,) = doctor._store(f"sqlite:///{tmp_path}/broken.db")
    assert found.ok is False and "not a database" in found.value


@pytest.mark.parametrize(("other", "ok"), [(100.0, True), (60.0, False)])
def test_a_clock_line_that_says_no_cannot_be_read_as_no_noise(
    other: float, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spins = itertools.cycle((100.0, other))
    monkeypatch.setattr(doctor, "_spin", lambda: next(spins))
    _, found = doctor._clock()
    assert (found.name, found.ok) == ("steady", ok)
    assert bool(found.remedy) is not ok
