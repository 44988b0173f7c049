"""The judge's clock around a window: two stamps, the last one in a context of its own.

To end a window the GPU switches from the worker's context to one of the judge's.  How long that
takes depends on what the call left in the L2 of that context's state: 286 us and 292 us after
nothing and after 132 MB of ordinary loads, when the context is the one that opened the gate.  A
context that has not run since the flush has nothing there in any case: 296.3 us after nothing and
after streaming reads, 297.3 us after ordinary loads of whatever size (H200).
"""

from __future__ import annotations

from harness.devices import driver


class Stamps:
    """A second context on the judge's GPU, a page of host memory, and a kernel that reads the time.

    `%globaltimer` is one clock for all contexts, in steps of 32 ns (H200).
    """

    def __init__(self, device: int, cubin: bytes) -> None:
        """`cubin`: our own kernels; the current context is the one that opens gates."""
        self._page = driver.HostPage()
        self._first = driver.Kernel(cubin, "stamp")
        self._context = driver.Context(device)
        with self._context:
            self._last = driver.Kernel(cubin, "stamp")
            self._stream = driver.create_stream()
            self._last(1, 1, (self._page.address + 8,), self._stream)  # its code is loaded then
            driver.synchronize(self._stream)

    def begin(self) -> None:
        """Queue the first stamp on torch's current stream, which opens the gate next."""
        self._first(1, 1, (self._page.address,))

    def end(self, done: int, flag: int) -> None:
        """Have the second context make the last stamp when the word at `done` is `flag`."""
        with self._context:
            driver.wait_signal(self._stream, done, flag)
            self._last(1, 1, (self._page.address + 8,), self._stream)
            driver.write_signal(self._stream, self._page.address + 16, flag)

    def hold(self, stream: int, flag: int) -> None:
        """Let `stream` go on when that stamp is made."""
        driver.wait_signal(stream, self._page.address + 16, flag)

    def end_here(self, stream: int, done: int, flag: int) -> None:
        """Make the last stamp on torch's current stream, `stream`, when it is.

        Around a call that waits for the device: the GPU goes round all contexts while it does, and
        one more costs such a call 120 us (H200).
        """
        driver.wait_signal(stream, done, flag)
        self._first(1, 1, (self._page.address + 8,))

    def release(self, flag: int) -> None:
        """Let it go on in any case: no stamp will be made."""
        self._page.words[2] = flag

    def settle(self) -> None:
        """Wait until the second context has nothing to do: the word it looks at must be set."""
        with self._context:
            driver.synchronize(self._stream)

    @property
    def elapsed_ns(self) -> int:
        """From the first stamp to the last, once the stream that was held has gone on."""
        return self._page.words[1] - self._page.words[0]
