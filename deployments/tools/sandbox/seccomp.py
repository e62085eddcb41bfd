"""The system calls that code in a sandbox may not use, as a program for the kernel's filter (seccomp-bpf).

Calls that reach beyond a process's own memory and files fail with EPERM: other processes, mounts, namespaces, kernel
modules, keys, clocks, and past ways into the kernel. So do calls that take memory outside every limit (System V memory,
memfd). Sockets exist only within the sandbox. Calls newer than this list do not exist there.
"""

import errno
import platform
import struct

_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_LAST_KNOWN = 449  # futex_waitv; the C library falls back where a newer call is missing.

_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_ANY, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT, _THIRD_ARGUMENT_AT = 0, 4, 16, 24, 32
_NEW_NAMESPACES = 0x7E020080  # Every CLONE_NEW* flag.
_AF_UNIX = 1
_DEVICE = 0o020000  # The bit that the modes of character and block devices share, and those of pipes and files lack.
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX put words into a terminal's mouth.

REFUSED = {
    # Other processes.
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_open": 434,
    "pidfd_getfd": 438, "process_madvise": 440, "migrate_pages": 256, "move_pages": 279,
    # Mounts and namespaces.
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "swapon": 167, "swapoff": 168, "quotactl": 179,
    "quotactl_fd": 443, "fanotify_init": 300, "fanotify_mark": 301,
    # The kernel itself.
    "init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320,
    "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "io_uring_setup": 425, "io_uring_enter": 426,
    "io_uring_register": 427, "add_key": 248, "request_key": 249, "keyctl": 250, "syslog": 103, "reboot": 169,
    "iopl": 172, "ioperm": 173, "modify_ldt": 154, "personality": 135, "uselib": 134, "ustat": 136, "sysfs": 139,
    "_sysctl": 156, "nfsservctl": 180, "lookup_dcookie": 212, "acct": 163, "vhangup": 153, "vmsplice": 278,
    "sethostname": 170, "setdomainname": 171, "settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305,
    "adjtimex": 159, "mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239,
    # Memory that outlives a mapping, and so every bound on address space.
    "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "semget": 64,
    "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240,
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET, _SOCKETPAIR, _IOCTL, _MKNOD, _MKNODAT, _SETPRIORITY = 56, 435, 41, 53, 16, 133, 259, 141


class UnsupportedMachine(Exception):
    """There is no list of system calls for this kind of processor."""


def build_filter(machine: str | None = None) -> bytes:
    """Return the program for the kernel and bubblewrap; raises UnsupportedMachine unless the processor is x86-64."""
    machine = machine or platform.machine()
    if machine != "x86_64":
        raise UnsupportedMachine(f"sandboxes need an x86-64 processor, and this is {machine}")
    program = [
        _statement(_LOAD, _ARCH_AT),
        _jump(_JUMP_EQUAL, _ARCH_X86_64, 1, 0),
        _statement(_RETURN, _KILL_PROCESS),
        _statement(_LOAD, _NUMBER_AT),
        _jump(_JUMP_GREATER, _X32_BIT - 1, 0, 1),
        _statement(_RETURN, _KILL_PROCESS),
        _jump(_JUMP_GREATER, _LAST_KNOWN, 0, 1),
        _refuse(errno.ENOSYS),
    ]
    for number in REFUSED.values():
        program += [_jump(_JUMP_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    # Its flags are in memory, which a filter cannot read; the C library then uses clone.
    program += [_jump(_JUMP_EQUAL, _CLONE3, 0, 1), _refuse(errno.ENOSYS)]
    program += _when(_CLONE, _FIRST_ARGUMENT_AT, [_jump(_JUMP_ANY, _NEW_NAMESPACES, 0, 1), _refuse(errno.EPERM)])
    for number in (_SOCKET, _SOCKETPAIR):
        is_local = [_jump(_JUMP_EQUAL, _AF_UNIX, 1, 0), _refuse(errno.EAFNOSUPPORT)]
        program += _when(number, _FIRST_ARGUMENT_AT, is_local)
    for command in _TERMINAL_INPUT:
        asked = [_jump(_JUMP_EQUAL, command, 0, 1), _refuse(errno.EPERM)]
        program += _when(_IOCTL, _SECOND_ARGUMENT_AT, asked)
    for number, mode_at in ((_MKNOD, _SECOND_ARGUMENT_AT), (_MKNODAT, _THIRD_ARGUMENT_AT)):
        program += _when(number, mode_at, [_jump(_JUMP_ANY, _DEVICE, 0, 1), _refuse(errno.EPERM)])
    # A negative number is a higher priority than others have.
    program += _when(_SETPRIORITY, _THIRD_ARGUMENT_AT, [_jump(_JUMP_GREATER, 0x7FFFFFFF, 0, 1), _refuse(errno.EPERM)])
    program.append(_statement(_RETURN, _ALLOW))
    return b"".join(program)


def _when(number: int, argument_at: int, then: list[bytes]) -> list[bytes]:
    """Return statements that check an argument of one call; the call's number is loaded before and after."""
    body = [_statement(_LOAD, argument_at), *then, _statement(_LOAD, _NUMBER_AT)]
    return [_jump(_JUMP_EQUAL, number, 0, len(body)), *body]


def _statement(code: int, operand: int) -> bytes:
    return struct.pack("<HBBI", code, 0, 0, operand)


def _jump(code: int, operand: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, operand)


def _refuse(number: int) -> bytes:
    return _statement(_RETURN, _ERRNO | number)
