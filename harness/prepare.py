"""Secret seeds, fresh inputs and the truth about them: what the submission must never see early."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from typing import Any

import torch

from harness import check, memory
from harness.errors import TaskError
from harness.exchange import describe, spec_of
from harness.model import Failed, ReferenceKind, Shape, Task
from harness.task import TaskModules
from harness.window import Frame, Prepared

COMPETITION = "competition"


class Seeds:
    """Seeds that nobody can guess, and that anybody can draw again once the key is revealed.

    Seed i is a keyed BLAKE2b of i under 128 secret bits: independent draws to everyone without the
    key (tests/exploits/zoo/f4_seed_recovery.py), a replayable sequence to everyone with it.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key if key is not None else secrets.token_bytes(16)
        self._drawn = 0

    @property
    def key(self) -> str:
        return self._key.hex()

    def stream(self, name: str) -> Seeds:
        """A sequence of its own, for what happens in another order, or oftener, in a replay."""
        named = name.encode("utf-8", "surrogateescape")
        return Seeds(
            hashlib.blake2b(named, key=self._key, digest_size=16, person=b"stream").digest()
        )

    def draw(self) -> int:
        """The next seed, 0 <= seed < 2**63."""
        counter = self._drawn.to_bytes(8, "big")
        self._drawn += 1
        return int.from_bytes(hashlib.blake2b(counter, key=self._key, digest_size=8).digest()) >> 1


class Preparer:
    """Makes one call's inputs and their expected outputs in the judge's private memory."""

    def __init__(self, task: Task, modules: TaskModules, torch_device: str) -> None:
        self._task = task
        self._modules = modules
        self._device = torch_device
        native = modules.supports_scaled_mm
        self._native = native is not None and native(torch.device(torch_device))

    @property
    def reference(self) -> ReferenceKind:
        return ReferenceKind.SCALED_MM if self._native else ReferenceKind.EXACT

    def prepare(self, shape: Shape, inputs: str, seed: int) -> Prepared:
        """Draw the inputs of one call and compute their truth.

        Raises TaskError, and DeviceError when there is too little memory for them.
        """
        ours = self._device == "cpu"
        with memory.enough_for(shape.label) if ours else contextlib.nullcontext():
            return self._prepare(shape, inputs, seed)

    def _prepare(self, shape: Shape, inputs: str, seed: int) -> Prepared:
        modules = self._modules
        data = modules.generate_input(
            **dict(shape.axes), seed=seed, inputs=inputs, device=self._device
        )
        try:
            tree, tensors = describe(data)
        except TypeError as error:
            raise TaskError(f"{self._task.root}/task: {error}") from None
        expected, truth = self._truth(data, inputs)
        result_tree, outputs = describe(expected)
        frame = Frame(
            tree,
            tuple(map(spec_of, tensors)),
            result_tree,
            tuple(map(spec_of, outputs)),
            modules.writable,
        )
        slack = None
        if truth is not None and modules.strict_slack is not None:
            slack = modules.strict_slack(inputs)
        return Prepared(
            frame=frame,
            data=data,
            tensors=tuple(tensors),
            expected=tuple(outputs),
            terms=getattr(truth, "terms", None),
            exact=getattr(truth, "exact", None),
            slack=slack,
        )

    def _truth(self, data: Any, inputs: str) -> tuple[Any, Any]:
        """What the submission must return, and the exact reference's own account of it."""
        modules = self._modules
        if modules.exact is None:
            return modules.ref_kernel(data), None
        truth = modules.exact(data)
        if not self._native or inputs != COMPETITION:
            return truth.expected, truth
        # The contest's own reference decides its own data, cross-checked against the exact one.
        reference = modules.ref_kernel(data)
        found = check.examine(
            reference,
            truth.expected,
            terms=None,
            tolerance=self._task.tolerance,
            slack=None,
        )
        if isinstance(found, Failed):
            raise TaskError(
                f"{self._task.root}/reference: torch._scaled_mm and the exact reference disagree "
                f"on this device ({found.message}): its results cannot be trusted here"
            )
        return reference, truth
