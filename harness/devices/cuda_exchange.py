"""Judge's half of the CUDA exchange: allocations that are exported, and what is done to them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import torch

from harness.devices import driver
from harness.devices.turns import Turns
from harness.exchange import GUARD_BYTES, TensorSpec, raw_bytes, view_as
from harness.window import Answer, Frame, Prepared

SIGNAL_BYTES = 4096


class DeviceBuffer:
    """One tensor's allocation on the GPU: guard band, payload, guard band."""

    def __init__(self, spec: TensorSpec, band: torch.Tensor, device: int) -> None:
        self.spec = spec
        self.mapping, self.descriptor = driver.create_shared(spec.allocation_bytes, device)
        flat = self.mapping.bytes()
        self.payload = flat[GUARD_BYTES : GUARD_BYTES + spec.span_bytes]
        # Two equal bands: before the payload, and as much right behind it.
        end = GUARD_BYTES + spec.span_bytes
        self.bands = (flat[:GUARD_BYTES], flat[end : end + GUARD_BYTES])
        for part in self.bands:
            part.copy_(band)

    def close(self) -> None:
        os.close(self.descriptor)
        self.mapping.unmap()


class CudaExchange:
    """`slots` sets of buffers of one shape, and a page of signals in an allocation of its own."""

    def __init__(self, frame: Frame, slots: int, device: int, kernels: tuple[int, int]) -> None:
        """`kernels`: descriptor and size of our own compiled kernels, for the worker's use."""
        self.turns = Turns(slots)
        self.quiet_reveal_ns = 0.0  # how long a reveal takes undisturbed
        self._kernels = kernels
        self._frame = frame
        cuda = torch.device(f"cuda:{device}")
        self._band = torch.frombuffer(bytearray(os.urandom(GUARD_BYTES)), dtype=torch.uint8).to(
            cuda
        )
        self._slots: list[list[DeviceBuffer]] = []
        with contextlib.ExitStack() as undo:  # of a half that memory was there for
            self._signals, self._signal_descriptor = driver.create_shared(SIGNAL_BYTES, device)
            undo.callback(self._close)
            self._signals.bytes().zero_()
            for _ in range(slots):
                self._slots.append([])
                for spec in frame.inputs + frame.outputs:
                    self._slots[-1].append(DeviceBuffer(spec, self._band, device))
            self._bands = torch.stack([self._band] * (2 * len(self._slots[0])))
            torch.cuda.synchronize()
            undo.pop_all()

    @property
    def go(self) -> int:
        """Device address of the word that lets the worker begin."""
        return self._signals.address

    @property
    def done(self) -> int:
        """Device address of the word that the worker's stream sets at its end."""
        return self._signals.address + 64

    def descriptors(self) -> list[int]:
        buffers = [buffer.descriptor for slot in self._slots for buffer in slot]
        return [self._signal_descriptor, *buffers, self._kernels[0]]

    def sizes(self) -> list[int]:
        """Bytes of each exported allocation, in the order of `descriptors`."""
        buffers = [buffer.mapping.size for slot in self._slots for buffer in slot]
        return [self._signals.size, *buffers, self._kernels[1]]

    def junk(self, slot: int) -> None:
        """Overwrite what the next window uses, so that whoever looks before its reveal sees noise.

        What lies in the others has been seen: inputs and answers of calls that are over.
        """
        for buffer in self._slots[slot]:
            whole = buffer.payload.numel() // 8 * 8
            buffer.payload[:whole].view(torch.int64).random_()
            buffer.payload[whole:].fill_(0xA5)

    def reveal(self, prepared: Prepared, slot: int) -> None:
        """Copy the private inputs in, and bury every place an answer may come from.

        What a submission may write is never copied in: the reference may have answered there.
        """
        buffers = self._slots[slot]
        for i, tensor in enumerate(prepared.tensors):
            if i not in self._frame.writable:
                buffers[i].payload.copy_(raw_bytes(tensor))
        for i in self._answerable():
            # 0xFFFF reads as NaN in every float; the low bits change from call to call.
            buffers[i].payload.fill_(0xFF)

    def room(self) -> list[torch.Tensor]:
        """Private memory for a snapshot of one call."""
        return [torch.empty_like(self._slots[0][i].payload) for i in self._answerable()]

    def snapshot(self, taken: Sequence[torch.Tensor], slot: int) -> None:
        """Copy every place an answer of this call may be into `room`; allocates nothing."""
        for i, copy in zip(self._answerable(), taken, strict=True):
            copy.copy_(self._slots[slot][i].payload)

    def unchanged_since(self, taken: Sequence[torch.Tensor], slot: int) -> bool:
        """Whether the answer still is what the snapshot holds."""
        same = [
            torch.all(self._slots[slot][i].payload == copy)
            for i, copy in zip(self._answerable(), taken, strict=True)
        ]
        return bool(torch.stack(same).all().item())

    def answer(
        self,
        taken: Sequence[torch.Tensor],
        where: Sequence[tuple[str, int]],
        prepared: Prepared,
        slot: int,
    ) -> Answer:
        """The outputs of the call and the state of the buffers around them, one device sync."""
        places = self._answerable()
        base = {"input": 0, "output": len(self._frame.inputs)}
        outputs = []
        for kind, number in where:
            i = base[kind] + number
            outputs.append(view_as(taken[places.index(i)], self._slots[slot][i].spec))
        touched, *changed = self._state(prepared, slot).tolist()
        return Answer(tuple(outputs), tuple(i for i, bad in enumerate(changed) if bad), not touched)

    def _state(self, prepared: Prepared, slot: int) -> torch.Tensor:
        """bool [1 + inputs]: guard bands touched, then for each input whether it was changed."""
        buffers = self._slots[slot]
        bands = torch.stack([band for buffer in buffers for band in buffer.bands])
        never = torch.zeros((), dtype=torch.bool, device=bands.device)
        changed = [
            never if i in self._frame.writable else (buffers[i].payload != raw_bytes(tensor)).any()
            for i, tensor in enumerate(prepared.tensors)
        ]
        return torch.stack([(bands != self._bands).any(), *changed])

    def _answerable(self) -> list[int]:
        """Buffers that an answer may be in: writable inputs and outputs."""
        count = len(self._frame.inputs)
        return [*self._frame.writable, *range(count, count + len(self._frame.outputs))]

    def close(self) -> None:
        torch.cuda.synchronize()
        self._close()

    def _close(self) -> None:
        for slot in self._slots:
            for buffer in slot:
                buffer.close()
        os.close(self._signal_descriptor)
        self._signals.unmap()
