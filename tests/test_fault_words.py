"""A fault's one line says what happened, once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError

import pytest

from harness import faults, sources
from harness.devices import collect

PATHS = faults.Paths("", "", ("mine",))
CUDA = """CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."""


def test_a_cuda_error_is_told_once_and_without_the_advice_that_always_follows() -> None:
    told = faults.explain(RuntimeError(CUDA), "call", PATHS)
    assert told["message"] == "RuntimeError: CUDA error: device-side assert triggered"
    assert told["verdict"] == "runtime_error"


def test_a_compilers_reason_is_kept_beside_the_first_line() -> None:
    text = (
        "Error building extension 'x'\n[1/2] nvcc ...\nx.cu(3): error: expected a ';'\nninja: stop"
    )
    told = faults.explain(RuntimeError(text), "import", PATHS)
    assert told["message"].startswith("RuntimeError: Error building extension 'x' ... x.cu(3): er")
    assert told["verdict"] == "compile_error"


def test_a_cuda_out_of_memory_is_one() -> None:
    text = "CUDA out of memory. Tried to allocate 1400.00 GiB. GPU 0 has a total capacity of ..."
    assert faults.explain(RuntimeError(text), "call", PATHS)["verdict"] == "out_of_memory"
    assert (
        faults.explain(RuntimeError("CUDA error: out of memory\nCUDA ker"), "call", PATHS)[
            "verdict"
        ]
        == "out_of_memory"
    )


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("Torch not compiled with CUDA enabled"),
        RuntimeError("Found no NVIDIA driver on your system."),
        RuntimeError("No CUDA GPUs are available"),
        RuntimeError("0 active drivers ([]). There should only be one."),
    ],
)
def test_where_there_is_no_gpu_that_is_said_first_and_the_raw_reason_after(
    error: Exception,
) -> None:
    told = faults.explain(error, "call", PATHS)
    assert told["verdict"] == "unsupported"
    assert told["message"] == (
        "it needs a GPU, and this machine has none that can be used: "
        f"{type(error).__name__}: {error}"
    )


def test_a_gpu_that_lacks_something_is_not_called_none() -> None:
    text = "CUDA error: no kernel image is available for execution on the device"
    told = faults.explain(RuntimeError(text), "call", PATHS)
    assert told["verdict"] == "unsupported" and told["message"] == f"RuntimeError: {text}"


def test_a_traceback_begins_with_the_submission_and_what_was_refused_has_none() -> None:
    """The frames that lead there are ours, and say nothing to its author."""
    try:
        collect.leaves(3, {"tensor": 0})
    except faults.Refused as refused:
        assert faults.explain(refused, "call", PATHS)["detail"] == ""
    try:
        try:
            collect.leaves(3, {"tensor": 0})
        finally:
            json.loads("{")
    except ValueError as error:
        detail = faults.explain(error, "call", PATHS)["detail"]
    assert "json/decoder.py" in detail and "During handling" in detail
    assert str(Path(faults.__file__).parent) not in detail


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FileNotFoundError(2, "No such file or directory", "weights.bin"), "is one file"),
        (ModuleNotFoundError("No module named 'mine'", name="mine"), "is one file"),
        (ModuleNotFoundError("No module named 'mine.own'", name="mine.own"), "is one file"),
        (ModuleNotFoundError("No module named 'numppy'", name="numppy"), None),
        (URLError("Temporary failure in name resolution"), "has no network"),
        (FileNotFoundError(2, "No such file or directory", "/etc/none.conf"), None),
        (FileNotFoundError(2, "No such file or directory", "nvcc"), None),
        (ValueError("weights.bin"), None),
    ],
)
def test_who_misses_what_no_submission_has_is_told_so(error: Exception, told: str | None) -> None:
    message = faults.explain(error, "import", PATHS)["message"]
    assert told in message if told else "; a submission" not in message


def test_a_module_that_is_not_there_is_not_installed_unless_it_lies_beside_the_file() -> None:
    error = ModuleNotFoundError("No module named 'numppy'", name="numppy")
    assert faults.explain(error, "import", PATHS)["message"] == (
        "ModuleNotFoundError: No module named 'numppy'; it is not installed here"
    )
    assert "installed" not in faults.explain(ModuleNotFoundError("own"), "import", PATHS)["message"]


def test_a_worker_hears_of_no_neighbour_that_its_submission_does_not_name(tmp_path: Path) -> None:
    for name in ("mine.py", "other.py", "notes.txt", "me.py"):
        (tmp_path / name).write_text("import mine, package.part, notes, numppy\n")
    for name in ("package", "folder"):
        (tmp_path / name).mkdir()
    found = sources.read_submission(tmp_path / "me.py", None)
    assert sources.beside(found) == ("mine", "package")
    assert sources.beside(replace(found, path="/nowhere/me.py")) == ()
