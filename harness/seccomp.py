"""The system calls that a worker may not make, as a seccomp filter; confine.py installs it.

A deny-list (ATTACKS 3.4): everything that python, torch, compilers and CUDA need stays open.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field

_X86_64 = 0xC000003E  # AUDIT_ARCH_X86_64, linux/audit.h
_AARCH64 = 0xC00000B7  # AUDIT_ARCH_AARCH64
_X32_BIT = 0x40000000  # __X32_SYSCALL_BIT: a second numbering of the same calls on x86_64

#: Denied calls and their numbers on (x86_64, aarch64); None where the machine has no such call.
#: From asm/unistd_64.h and asm-generic/unistd.h; tests/test_confine.py compares them.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # reading or steering another process
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    # another view of the file system, another set of rights
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # large or rarely used kernel surface
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "memfd_secret": (447, 447),
    "personality": (135, 92),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    # memory that no process is charged for (tests/exploits/zoo/m9_hidden_memory.py)
    "shmget": (29, 194),
    "lookup_dcookie": (212, 18),
    # the machine itself, and its clocks
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
}

#: Host-wide objects with names or keys: denied where there is no ipc namespace.
INTERPROCESS: dict[str, tuple[int, int]] = {
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}

#: Calls whose arguments decide, same columns.
JUDGED: dict[str, tuple[int, int]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "socket": (41, 198),
    "connect": (42, 203),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "fcntl": (72, 25),
}

_CLONE_NEW = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_DGRAM, _SOCK_TYPE_MASK = 2, 0xF
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15

# linux/bpf_common.h and linux/seccomp.h
_LOAD, _JUMP_EQUAL, _JUMP_GE, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_EPERM, _ENOSYS = 1, 38
_NR, _ARCH, _ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; arguments are 8 bytes each

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


@dataclass(slots=True)
class _Assembler:
    """BPF with named targets; a jump leads to a label further down, "" means the next line."""

    lines: list[tuple[int, int, str, str]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def emit(self, code: int, k: int, yes: str = "", no: str = "") -> None:
        self.lines.append((code, k, yes, no))

    def label(self, name: str) -> None:
        self.labels[name] = len(self.lines)

    def load_argument(self, index: int) -> None:
        """The low half only: every argument looked at here is an int (both machines are LE)."""
        self.emit(_LOAD, _ARGUMENT + 8 * index)

    def assemble(self) -> bytes:
        out = b""
        for at, (code, k, yes, no) in enumerate(self.lines):
            jumps = [self.labels[name] - at - 1 if name else 0 for name in (yes, no)]
            out += struct.pack("<HBBI", code, jumps[0], jumps[1], k)
        return out


def program(*, machine: str, namespaces: bool, guard_pid: int | None = None) -> bytes:
    """The filter for `machine` ("x86_64" or "aarch64") as an array of struct sock_filter.

    Without `namespaces` of network and ipc, only local sockets can be made, none of them reaches
    a listener of the host's, and shared objects of the host are out of reach.  `guard_pid`, the
    worker's own process, confines signals to it and its group: where neither a pid namespace,
    another user nor Landlock does.
    Raises KeyError for another machine.
    """
    column, arch = {"x86_64": (0, _X86_64), "aarch64": (1, _AARCH64)}[machine]
    code = _Assembler()
    code.emit(_LOAD, _ARCH)
    code.emit(_JUMP_EQUAL, arch, no="kill")
    code.emit(_LOAD, _NR)
    if machine == "x86_64":
        code.emit(_JUMP_GE, _X32_BIT, yes="absent")
    numbers = {name: pair[column] for name, pair in JUDGED.items()}
    code.emit(_JUMP_EQUAL, numbers["clone3"], yes="absent")  # glibc then uses clone
    for name in ("clone", "socket"):
        code.emit(_JUMP_EQUAL, numbers[name], yes=name)
    if not namespaces:
        code.emit(_JUMP_EQUAL, numbers["connect"], yes="deny")
        for shared in INTERPROCESS.values():
            code.emit(_JUMP_EQUAL, shared[column], yes="deny")
    if guard_pid is not None:
        code.emit(_JUMP_EQUAL, numbers["tkill"], yes="deny")
        code.emit(_JUMP_EQUAL, numbers["fcntl"], yes="fcntl")
        for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            code.emit(_JUMP_EQUAL, numbers[name], yes="signal")
    for pair in DENIED.values():
        number = pair[column]
        if number is not None:
            code.emit(_JUMP_EQUAL, number, yes="deny")
    code.emit(_RETURN, _ALLOW)
    _judged(code, namespaces=namespaces, guard_pid=guard_pid)
    for label, result in (
        ("allow", _ALLOW),
        ("deny", _ERRNO | _EPERM),
        ("absent", _ERRNO | _ENOSYS),
        ("kill", _KILL),
    ):
        code.label(label)
        code.emit(_RETURN, result)
    return code.assemble()


def _judged(code: _Assembler, *, namespaces: bool, guard_pid: int | None) -> None:
    """The sections of the calls whose arguments decide."""
    code.label("clone")  # clone3 passes its flags in memory, which no filter can read: ENOSYS
    code.load_argument(0)
    code.emit(_JUMP_SET, _CLONE_NEW, yes="deny", no="allow")
    code.label("socket")
    code.load_argument(0)
    if namespaces:
        for family in (_AF_UNIX, _AF_INET, _AF_INET6):
            code.emit(_JUMP_EQUAL, family, yes="allow")
        code.emit(_JUMP_EQUAL, _AF_NETLINK, yes="allow", no="deny")
    else:
        code.emit(_JUMP_EQUAL, _AF_UNIX, no="deny")
        code.load_argument(1)
        code.emit(_AND, _SOCK_TYPE_MASK)  # a datagram reaches a listener without connect
        code.emit(_JUMP_EQUAL, _SOCK_DGRAM, yes="deny", no="allow")
    if guard_pid is None:
        return
    code.label("signal")
    code.load_argument(0)
    code.emit(_JUMP_EQUAL, 0, yes="allow")
    code.emit(_JUMP_EQUAL, guard_pid, yes="allow", no="deny")
    code.label("fcntl")  # SIGIO, or any signal by F_SETSIG, sent to a process of its choice
    code.load_argument(1)
    for command in (_F_SETOWN, _F_SETSIG):
        code.emit(_JUMP_EQUAL, command, yes="deny")
    code.emit(_JUMP_EQUAL, _F_SETOWN_EX, yes="deny", no="allow")


class _Fprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(filters: bytes) -> None:
    """Confine this thread and its descendants for good.

    Needs no-new-privileges.  Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(filters, len(filters))
    fprog = _Fprog(len(filters) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(fprog), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp filter refused")
