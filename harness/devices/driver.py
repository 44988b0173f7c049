"""The few CUDA driver calls that torch does not offer: shared memory, stream signals, modules.

Used on both sides.  `cuda-bindings` comes with every CUDA build of torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from cuda.bindings import driver, nvrtc

_POSIX_FD = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class DriverError(RuntimeError):
    """A driver call failed; the message names the error as CUDA does."""


def check(result: tuple[Any, ...]) -> Any:
    """Unpack what cuda-bindings returns.  Raises DriverError."""
    error, *values = result
    if int(error) != 0:
        name = getattr(error, "name", str(error))
        if name == "CUDA_ERROR_OUT_OF_MEMORY":
            raise torch.cuda.OutOfMemoryError(name)  # as torch's own allocator says it
        raise DriverError(name)
    return values[0] if len(values) == 1 else tuple(values)


@dataclass(slots=True)
class Mapping:
    """One allocation of `size` bytes at device address `address` in this process."""

    address: int
    size: int

    def bytes(self) -> torch.Tensor:
        """The whole of it as flat uint8 on the current device; does not keep it alive."""
        size, address = self.size, self.address

        class Raw:
            __cuda_array_interface__ = {
                "shape": (size,),
                "typestr": "|u1",
                "data": (address, False),
                "version": 3,
            }

        return torch.as_tensor(Raw(), device=f"cuda:{torch.cuda.current_device()}")

    def unmap(self) -> None:
        check(driver.cuMemUnmap(self.address, self.size))
        check(driver.cuMemAddressFree(self.address, self.size))


def _properties(device: int) -> Any:
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    properties.requestedHandleTypes = _POSIX_FD
    return properties


def create_shared(size: int, device: int) -> tuple[Mapping, int]:
    """Allocate at least `size` bytes that can be shared, map them, and return a descriptor too."""
    properties = _properties(device)
    option = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    step = check(driver.cuMemGetAllocationGranularity(properties, option))
    size = -(-size // step) * step
    handle = check(driver.cuMemCreate(size, properties, 0))
    try:
        mapping = _map(handle, size, device)
        try:
            return mapping, int(check(driver.cuMemExportToShareableHandle(handle, _POSIX_FD, 0)))
        except BaseException:
            mapping.unmap()
            raise
    finally:
        driver.cuMemRelease(handle)  # the mapping and the descriptor keep it


def import_shared(descriptor: int, size: int, device: int) -> Mapping:
    """Map an allocation that came as a descriptor; `size` is the exporter's rounded size."""
    handle = check(driver.cuMemImportFromShareableHandle(descriptor, _POSIX_FD))
    try:
        return _map(handle, size, device)
    finally:
        driver.cuMemRelease(handle)


def _map(handle: Any, size: int, device: int) -> Mapping:
    address = int(check(driver.cuMemAddressReserve(size, 0, 0, 0)))
    try:
        check(driver.cuMemMap(address, size, 0, handle, 0))
    except BaseException:
        driver.cuMemAddressFree(address, size)
        raise
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = device
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    check(driver.cuMemSetAccess(address, size, [access], 1))
    return Mapping(address, size)


def write_signal(stream: int, address: int, value: int) -> None:
    """Set a 32-bit word when the stream gets there."""
    check(driver.cuStreamWriteValue32(stream, address, value, 0))


def wait_signal(stream: int, address: int, value: int) -> None:
    """Hold the stream until the 32-bit word is at least `value`."""
    flag = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
    check(driver.cuStreamWaitValue32(stream, address, value, flag))


def reset_persisting_l2() -> None:
    """Give lines that were pinned in L2 back (llm.c #851 read them at 4x the card's bandwidth)."""
    check(driver.cuCtxResetPersistingL2Cache())


def compile_cubin(source: str, device: int) -> bytes:
    """Compile CUDA C++ for this device with NVRTC.  Raises DriverError with the compiler's log."""
    major, minor = torch.cuda.get_device_capability(device)
    program = check(nvrtc.nvrtcCreateProgram(source.encode(), b"harness.cu", 0, [], []))
    options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
    try:
        check(nvrtc.nvrtcCompileProgram(program, len(options), options))
    except DriverError as error:
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        raise DriverError(f"{error}: {log.decode(errors='replace')}") from None
    cubin = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
    check(nvrtc.nvrtcGetCUBIN(program, cubin))
    return bytes(cubin)


class Context:
    """A context of this process besides torch's; current within `with`."""

    def __init__(self, device: int) -> None:
        before = check(driver.cuCtxGetCurrent())
        ordinal = check(driver.cuDeviceGet(device))
        try:
            self._context = check(driver.cuCtxCreate(None, 0, ordinal))
        except TypeError:  # cuda-bindings before 13
            self._context = check(driver.cuCtxCreate(0, ordinal))
        check(driver.cuCtxPopCurrent())
        check(driver.cuCtxSetCurrent(before))

    def __enter__(self) -> None:
        check(driver.cuCtxPushCurrent(self._context))

    def __exit__(self, *raised: object) -> None:
        check(driver.cuCtxPopCurrent())


class HostPage:
    """A page of pinned memory that every context of this process sees, as 64-bit words."""

    def __init__(self) -> None:
        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        begin = int(check(driver.cuMemHostAlloc(4096, flags)))
        #: For device code as well: host and device have one address space.
        self.address = begin
        self.words = (ctypes.c_uint64 * 512).from_address(begin)
        self.words[:] = [0] * 512


def create_stream() -> int:
    """A stream of the current context that waits for no other."""
    return int(check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)))


def synchronize(stream: int) -> None:
    """Wait until the stream is empty."""
    check(driver.cuStreamSynchronize(stream))


class Kernel:
    """One function of a cubin, loaded into the current context."""

    def __init__(self, cubin: bytes, name: str) -> None:
        self._module = check(driver.cuModuleLoadData(cubin))
        self._function = check(driver.cuModuleGetFunction(self._module, name.encode()))

    def __call__(
        self, grid: int, block: int, arguments: Sequence[int], stream: int | None = None
    ) -> None:
        """Launch with 64-bit integer arguments, the only kind these kernels take.

        On torch's current stream, unless another is given.
        """
        values = [np.array([argument], dtype=np.int64) for argument in arguments]
        pointers = np.array([value.ctypes.data for value in values], dtype=np.uint64)
        if stream is None:
            stream = torch.cuda.current_stream().cuda_stream
        check(
            driver.cuLaunchKernel(
                self._function, grid, 1, 1, block, 1, 1, 0, stream, pointers.ctypes.data, 0
            )
        )
