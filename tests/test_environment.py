"""What a worker may read and the variables that it gets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness import bubblewrap, environment
from harness.model import Isolation
from tests.workers import make_plan, require, running, scratch_folder, wait_for_end

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = Path("/tmp/scratch")


@pytest.fixture
def scratch() -> Iterator[Path]:
    with scratch_folder() as folder:
        yield folder


def test_the_project_is_never_readable_and_its_package_is() -> None:
    readable = environment.default_readable()
    assert ROOT / "harness" in readable
    assert not any(ROOT.is_relative_to(path) for path in readable)
    assert Path("/") not in readable
    assert Path("/etc") not in readable
    assert Path.home() not in readable


def test_the_interpreter_and_its_packages_are_readable() -> None:
    readable = environment.default_readable()
    for path in (sys.executable, sys.prefix, sys.base_prefix, pytest.__file__, re.__file__):
        assert any(Path(path).is_relative_to(folder) for folder in readable), path


def test_nothing_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_PRELOAD", "PYTHONPATH", "CUDA_INJECTION64_PATH", "CXX", "HARNESS_DB"):
        monkeypatch.setenv(name, "/evil")
    monkeypatch.setenv("PATH", "/evil")
    variables = environment.worker_environment(SCRATCH, cuda=True, arch_list="9.0")
    assert not any("evil" in value for _, value in variables)


def test_every_cache_is_private() -> None:
    variables = dict(environment.worker_environment(SCRATCH, cuda=True))
    for name, value in variables.items():
        if (
            name.endswith(("_DIR", "_HOME", "_BASE", "CACHE_PATH", "PREFIX"))
            and name != "CUDA_HOME"
        ):
            assert value.startswith(f"{SCRATCH}/"), name
    assert variables["HOME"].startswith(f"{SCRATCH}/")
    assert variables["TMPDIR"].startswith(f"{SCRATCH}/")
    folders = [value for value in variables.values() if value.startswith(f"{SCRATCH}/cache")]
    assert len(folders) == len(set(folders)) > 10


def test_the_programs_of_a_virtual_environment_are_on_the_path() -> None:
    # torch looks for ninja there (FAULTS B62).
    path = dict(environment.worker_environment(SCRATCH, cuda=False))["PATH"].split(":")
    assert path[0] == str(Path(sys.executable).parent)
    assert shutil.which("cc", path=":".join(path)) == shutil.which("cc")


def test_a_gpu_is_visible_only_when_it_was_given() -> None:
    without = dict(environment.worker_environment(SCRATCH, cuda=False))
    given = dict(environment.worker_environment(SCRATCH, cuda=True, visible="GPU-1"))
    assert without["CUDA_VISIBLE_DEVICES"] == ""
    assert given["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert given["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "TORCH_CUDA_ARCH_LIST" not in given


@pytest.mark.parametrize("level", list(Isolation))
def test_a_module_of_ours_runs_where_the_project_is_invisible(
    scratch: Path, level: Isolation
) -> None:
    require(level)
    plan = make_plan(scratch, "")
    argv = environment.worker_argv("harness.errors", "argument")
    with running(replace(plan, argv=argv), level) as (confined, _):
        assert wait_for_end(confined) == "exit code 0", confined.log()


def test_packages_are_found_and_ninja_runs_in_a_sandbox(scratch: Path) -> None:
    require(Isolation.SANDBOX)
    if shutil.which("ninja", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("ninja is not installed beside this interpreter: pip install ninja")
    code = (
        "import numpy, torch, torch.utils.cpp_extension as extension\n"
        "extension.verify_ninja_availability()\n"
        "print(numpy.ones(3).sum(), torch.ones(3).sum().item())\n"
    )
    plan = make_plan(scratch, "")
    argv = (sys.executable, "-I", "-B", "-c", code)
    with running(replace(plan, argv=argv), Isolation.SANDBOX) as (confined, _):
        assert wait_for_end(confined) == "exit code 0", confined.log()
    assert confined.log() == "3.0 3.0\n"


def command(*, privileged: bool, devices: tuple[Path, ...] = ()) -> list[str]:
    return bubblewrap.command(
        program="bwrap",
        readable=(Path("/usr"), Path("/opt/a/b"), Path("/usr/local")),
        hidden=(Path("/usr/src/app"), Path("/elsewhere")),
        devices=devices,
        scratch=Path("/tmp/s"),
        privileged=privileged,
    )


def test_the_host_is_absent_unless_named() -> None:
    args = command(privileged=False)
    bound = {args[at + 1] for at, arg in enumerate(args) if "bind" in arg}
    assert bound == {"/usr", "/opt/a/b", "/tmp/s"}


def test_a_hidden_folder_is_covered_only_where_it_would_show() -> None:
    args = command(privileged=False)
    covered = [args[at + 1] for at, arg in enumerate(args) if arg == "--tmpfs"]
    assert covered == ["/dev/shm", "/tmp", "/usr/src/app"]


def test_devices_are_bound_after_the_new_dev_and_bring_sys() -> None:
    args = command(privileged=True, devices=(Path("/dev/nvidia0"),))
    assert args.index("--dev") < args.index("--dev-bind")
    assert "/sys" in args
    assert "/sys" not in command(privileged=True)


def test_root_keeps_only_what_changing_the_user_needs() -> None:
    args = command(privileged=True)
    kept = [args[at + 1] for at, arg in enumerate(args) if arg == "--cap-add"]
    assert kept == ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"]
    assert "--unshare-user" not in args
    assert "--cap-add" not in command(privileged=False)
    assert "--unshare-user" in command(privileged=False)


@pytest.mark.parametrize("privileged", [True, False])
def test_every_command_has_all_namespaces_and_dies_with_us(privileged: bool) -> None:
    args = command(privileged=privileged)
    for name in ("ipc", "pid", "net", "uts"):
        assert f"--unshare-{name}" in args
    assert {"--die-with-parent", "--new-session"} < set(args)
    assert args[-1] == "--"


def test_bubblewrap_knows_every_option() -> None:
    program = shutil.which("bwrap")
    if program is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    args = command(privileged=True, devices=(Path("/dev/null"),)) + command(privileged=False)
    for option in {arg for arg in args if arg.startswith("--") and arg != "--"}:
        assert f"{option} " in text or f"{option}\n" in text, option


def test_what_is_installed_is_on_the_path_and_no_checkout() -> None:
    library = os.path.dirname(os.__file__)
    kept = [
        library,
        f"{library}/lib-dynload",
        "/usr/lib/python3/dist-packages",
        "/venv/lib/python3.12/site-packages",
        # of nvidia-cutlass-dsl, by its own .pth file
        "/venv/lib/python3.12/site-packages/nvidia_cutlass_dsl/python_packages",
    ]
    dropped = ["", ".", "/repository", "/repository/src", "/usr/lib/python312.zip"]
    assert environment.installed([*dropped, *kept, *kept]) == kept
