"""The untrusted side: import the submission, call it, answer.  Whatever it says is testimony.

Everything here runs in one process with the submission, which can rewrite all of it; nothing that
the judge believes depends on this file being honest.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from harness import faults, wire

#: Where the judge puts the channel before exec.
CHANNEL_FD = 3
SUBMISSION_MODULE = "submission"


class Lane(Protocol):
    """The worker's half of an exchange on one device."""

    def settle(self) -> None:
        """Return when the device has nothing of ours left to do."""

    def call(self, kernel: Callable[[Any], Any] | None, order: dict[str, Any]) -> dict[str, Any]:
        """Run one window and return the fields of its `done`.

        Without a kernel, before the import, the order names a body of our own to calibrate with.
        """

    def observe(self, kernel: Callable[[Any], Any] | None, order: dict[str, Any]) -> dict[str, Any]:
        """Run calls under a profiler and return the fields of `observed`."""

    def close(self) -> None: ...


class Worker:
    """Answers one order at a time, in the order they come."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel
        self._lane: Lane | None = None
        self._kernel: Callable[[Any], Any] | None = None
        self._paths = faults.Paths("", "")
        self._device = "cpu"

    def serve(self) -> None:
        while True:
            try:
                order, descriptors = self._channel.receive_order()
            except wire.Closed:
                return
            if order["kind"] == "quit":
                return
            try:
                self._answer(order, descriptors)
            except wire.Closed:
                return
            except BaseException as error:  # noqa: BLE001 - a submission may raise anything
                fault = faults.explain(error, order["kind"], self._paths)
                self._channel.send("fault", seq=order["seq"], **dict[str, Any](fault))
            finally:
                for descriptor in descriptors:
                    with contextlib.suppress(OSError):
                        os.close(descriptor)

    def _answer(self, order: dict[str, Any], descriptors: list[int]) -> None:
        kind = order["kind"]
        if kind == "start":
            self._start(order)
            return
        if kind == "call":
            assert self._lane is not None
            self._channel.send("done", seq=order["seq"], **self._lane.call(self._kernel, order))
            return
        if kind == "observe":
            assert self._lane is not None
            seen = self._lane.observe(self._kernel, order)
            self._channel.send("observed", seq=order["seq"], **seen)
            return
        if kind == "import":
            self._import(Path(order["path"]))
        elif kind == "map":
            self._map(order, descriptors)
        elif kind == "idle" and self._lane is not None:
            self._lane.settle()
        self._channel.send("ready", seq=order["seq"])

    def _start(self, order: dict[str, Any]) -> None:
        self._device = order["device"]
        self._paths = faults.Paths(order["file"], order["display"], tuple(order["beside"]))
        sys.path.insert(0, str(Path(order["file"]).parent))
        facts = [f"torch {torch.__version__}", f"python {sys.version.split()[0]}"]
        if self._device != "cpu":
            from harness.devices import cuda_lane

            facts += cuda_lane.start()
        if order["emulate"]:
            from harness import emulation

            emulation.install()
        self._channel.send("hello", version=wire.VERSION, facts=facts)

    def _map(self, order: dict[str, Any], descriptors: list[int]) -> None:
        if self._lane is not None:
            self._lane.close()
        if self._device == "cpu":
            from harness.devices.cpu_lane import CpuLane

            self._lane = CpuLane(order, descriptors)
        elif "sizes" in order and len(order["sizes"]) == len(order["inputs"] + order["outputs"]):
            from harness.devices.cuda_host_lane import CudaHostLane

            self._lane = CudaHostLane(order, descriptors)
        else:
            from harness.devices.cuda_lane import CudaLane

            self._lane = CudaLane(order, descriptors, self._channel)

    def _import(self, path: Path) -> None:
        spec = importlib.util.spec_from_file_location(SUBMISSION_MODULE, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Pickling, dataclasses and inspect look a function's module up by name.
        sys.modules[SUBMISSION_MODULE] = module
        spec.loader.exec_module(module)
        kernel = getattr(module, "custom_kernel", None)
        if not callable(kernel):
            raise faults.NoKernel
        self._kernel = kernel


def main() -> None:
    """Serve the channel on descriptor 3 until the judge hangs up."""
    gc.freeze()  # nor do collections during a timed call walk through all of torch
    gc.enable()
    sock = socket.socket(fileno=CHANNEL_FD)
    sock.set_inheritable(False)  # not for the submission's own children
    # A process that the submission spawns imports its parent's main module by this name or this
    # file, and would look for ours.
    main_module = sys.modules["__main__"]
    main_module.__spec__ = None
    del main_module.__file__
    Worker(wire.Channel(sock)).serve()
    # Not sys.exit: a submission's atexit hooks and threads have nothing left to say.
    os._exit(0)


if __name__ == "__main__":
    main()
