"""Start one confined worker with the submission and a copy of task/, and bring it to attention."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import environment, sandbox, scratch, wire
from harness.errors import SandboxError
from harness.model import Failed, Isolation, Limits
from harness.session import Session

#: Loading torch from a cold disk on a small machine; no code of the submission has run by then.
START_NS = 120_000_000_000


@dataclass(frozen=True, slots=True)
class Launcher:
    """Everything that workers of one run have in common."""

    scratch: Path
    task_root: Path
    source: str
    display: str  # the submission's path as its author knows it
    device: str
    level: Isolation
    limits: Limits
    emulate: bool
    deadline_ns: int
    devices: tuple[Path, ...] = ()
    arch_list: str | None = None
    visible: str = ""
    beside: tuple[str, ...] = ()  # modules in the author's folder, which no worker sees
    still: Callable[[], None] = lambda: None  # says that the judge lives
    spare: list[Session] = field(default_factory=list)  # spawned ahead, used first

    @property
    def file(self) -> Path:
        return self.scratch / "lib" / "submission.py"

    def spawn(self) -> Session:
        """A worker process that loads torch and waits.  SandboxError when it cannot start."""
        return self.spare.pop(0) if self.spare else self._spawn()

    def spawn_ahead(self, count: int) -> None:
        """Have so many fresh workers loading torch, so that nobody waits for them later.

        Also while another one is timed: loading torch does not touch the GPU.
        """
        while len(self.spare) < count:
            self.spare.append(self._spawn())

    def close(self) -> None:
        """End the workers that nobody asked for."""
        while self.spare:
            self.spare.pop().close()

    def _spawn(self) -> Session:
        ours, theirs = wire.channel_pair()
        cuda = self.device != "cpu"
        plan = sandbox.Plan(
            argv=environment.worker_argv("harness.worker"),
            channel_fd=theirs.fileno(),
            scratch=self.scratch,
            readable=environment.default_readable(),
            devices=self.devices,
            limits=self.limits,
            hidden=tuple(
                path
                for path in (self.task_root / "reference", self.task_root / "results")
                if path.exists()
            ),
            environment=environment.worker_environment(
                self.scratch,
                cuda=cuda,
                arch_list=self.arch_list,
                visible=self.visible,
            ),
        )
        with theirs:
            confined = sandbox.start(plan, level=self.level)
        return Session(confined, ours, self.deadline_ns, self.still)

    def attend(self, session: Session, *, again: bool = False) -> Failed | None:
        """Have a spawned worker take its device.  SandboxError when it does not answer.

        `again`: an earlier worker has run the submission.  When the run's time is over then, it is
        the submission that used it up (tests/exploits/zoo/m7_stop_itself.py).
        """
        self._lay_out()
        session.deadline_ns = self.deadline_ns  # it may have been spawned before the run began
        hello = session.order(
            "start",
            timeout_ns=START_NS,
            device="cpu" if self.device == "cpu" else "cuda:0",  # it sees one GPU at most
            file=str(self.file),
            display=self.display,
            beside=list(self.beside),
            emulate=self.emulate,
        )
        if isinstance(hello, Failed):
            if again and time.monotonic_ns() >= self.deadline_ns:
                return hello
            log = session.confined.log()
            session.close()
            raise SandboxError(
                f"a worker did not start at isolation level {self.level}: {hello.message}"
                f"{': ' + log[-400:] if log else ''}. `harness doctor` says what is possible here"
            )
        return None

    def bring_in(self, session: Session) -> Failed | None:
        """Have the worker import the submission."""
        reply = session.order("import", timeout_ns=self.limits.import_ns, path=str(self.file))
        return reply if isinstance(reply, Failed) else None

    def _lay_out(self) -> None:
        """Write the submission and task/ afresh: the last worker could write to its copies.

        It may have put anything in their place (tests/exploits/zoo/k4_links_for_the_judge.py).
        """
        library = self.scratch / "lib"
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        try:
            scratch.relieve(self.scratch, self.limits.file_bytes)
            scratch.remove(library)
            library.mkdir(mode=0o755)
            self.file.write_bytes(self.source.encode("utf-8", "surrogateescape"))
            shutil.copytree(self.task_root / "task", library / "task", ignore=ignored)
            _make_readable(library)
        except OSError as error:
            raise SandboxError(f"{library} cannot be laid out for a worker: {error}") from error


def _make_readable(folder: Path) -> None:
    """Let a worker read what was laid out for it: root's workers are another user.

    The modes are those of the caller's umask (027 and 077 are usual for root) and of the clone that
    task/ came from.  Nobody else gets this far: the scratch folder around it is the worker's alone.
    """
    for here, _, files in os.walk(folder):
        os.chmod(here, 0o755)
        for name in files:
            os.chmod(os.path.join(here, name), 0o644)
