"""Verdicts of earlier gates, kept by the content of everything that they depend on.

`passed` and `unsupported` are kept: all else is tried again, so that a machine that was ill for a
moment does not fail the same file for ever.  What is unsupported stays so until a package, a
compiler, a GPU or its driver is another: each of these is in the key.  Nothing here loads torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import harness
from harness import codec, machine
from harness.model import Job, Run, Submission, Task, Verdict

KEPT = (Verdict.PASSED, Verdict.UNSUPPORTED)
#: Entries beyond this go, longest unused first; one of the shipped task takes about 20 kB.
ENTRIES = 2000
_SCHEMA = 1
_TOOLS = ("nvcc", "g++", "ninja", "bwrap")


def verdict_key(job: Job, task: Task, facts: Sequence[tuple[str, str]]) -> str:
    """Name an entry by all that can change a verdict: what is judged, by what, and where."""
    parts = {
        "schema": _SCHEMA,
        "submission": job.submission.sha256,
        "task": task.digest,
        "mode": job.mode.value,
        "device": job.device,
        "isolation": job.isolation.value,
        "timeout": job.timeout_ns,
        "facts": list(map(list, facts)),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def machine_facts(
    environment: Mapping[str, str], cuda_home: Path | None = None
) -> tuple[tuple[str, str], ...]:
    """Harness, packages, processor, GPUs and compilers of this machine, found without torch.

    `cuda_home` is the toolkit that a worker gets, which need not be on our own PATH.
    """
    versions = tuple((k, v) for k, v in machine.versions() if k in ("python", "system"))
    found = {tool: shutil.which(tool) for tool in _TOOLS}
    if cuda_home is not None:
        found["nvcc"] = str(cuda_home / "bin/nvcc")
    return (
        ("harness", harness_digest()),
        *versions,
        *machine.distributions(),
        ("processor", _processor()),
        ("gpus", _gpus()),
        ("visible", environment.get("CUDA_VISIBLE_DEVICES", "all")),
        *((tool, _file_fact(path)) for tool, path in found.items()),
    )


def _file_fact(path: str | None) -> str:
    """Which file a program is: an update keeps its name, and changes size and time."""
    if path is None:
        return ""
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
    except OSError:
        return real
    return f"{real} {found.st_size} {found.st_mtime_ns}"


def harness_digest() -> str:
    """sha256 over the names and contents of this package's Python files."""
    folder = Path(harness.__file__).resolve().parent
    total = hashlib.sha256(harness.__version__.encode())
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        total.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _gpus() -> str:
    """Names of the GPUs and the driver's version, "" without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ""
    try:
        count = pynvml.nvmlDeviceGetCount()
        names = [
            pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)
        ]
        return ", ".join((*map(str, names), str(pynvml.nvmlSystemGetDriverVersion())))
    except pynvml.NVMLError:
        return "unknown"
    finally:
        pynvml.nvmlShutdown()


class VerdictCache:
    """A folder with one file an entry.  What cannot be read is a miss, never an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str, submission: Submission, task: Task) -> Run | None:
        """The kept run of this submission, under its present name; None where there is none."""
        path = self._path(key)
        if not path.is_file():  # nor a pipe, which would be waited for
            return None
        try:
            document = json.loads(path.read_bytes())
            run = codec.decode(Run, document["run"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None
        fits = (
            document.get("key") == key
            and run.verdict in KEPT
            and run.submission.sha256 == submission.sha256
            and run.task_digest == task.digest
        )
        if not fits:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return replace(run, submission=submission)

    def put(self, key: str, run: Run) -> None:
        """Keep a verdict worth keeping.  Raises OSError where the folder cannot be written."""
        if run.verdict not in KEPT:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The text of the submission is in the key; a cache that is copied about need not hold it.
        slim = replace(run, submission=replace(run.submission, source=""), log="")
        document = {"key": key, "run": codec.encode(slim)}
        descriptor, name = tempfile.mkstemp(prefix="new-", dir=self.folder)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump(document, file)
            os.replace(name, self._path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        self._prune()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _prune(self) -> None:
        with contextlib.suppress(OSError):
            entries = sorted(self.folder.glob("*.json"), key=lambda p: p.stat().st_mtime)
            for path in entries[:-ENTRIES]:
                path.unlink(missing_ok=True)
