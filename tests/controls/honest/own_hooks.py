"""It handles a signal, has something to do at exit, and turns the garbage collector off."""

import atexit
import gc
import signal

gc.disable()
gc.freeze()
atexit.register(print, "bye")
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def custom_kernel(data):
    return data[0] * 2
