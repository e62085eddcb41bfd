"""The filter of system calls, run as the kernel runs it."""

import errno
import struct

import pytest

from deployments.tools.sandbox.seccomp import REFUSED, UnsupportedMachine, build_filter

ALLOWED, KILLED = 0x7FFF0000, 0x80000000
X86_64, I386 = 0xC000003E, 0x40000003


def decide(number: int, *arguments: int, arch: int = X86_64) -> int:
    """Return what the filter says of a call."""
    six = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, arch, 0, *six)
    program = build_filter("x86_64")
    statements = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    at = loaded = 0
    while True:
        code, if_true, if_false, operand = statements[at]
        at += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("<I", data, operand)
            case 0x15:
                at += if_true if loaded == operand else if_false
            case 0x25:
                at += if_true if loaded > operand else if_false
            case 0x45:
                at += if_true if loaded & operand else if_false
            case 0x06:
                return operand
            case _:
                raise AssertionError(hex(code))


def refused(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_listed_is_refused(name):
    assert decide(REFUSED[name]) == refused(errno.EPERM)


def test_what_code_needs_is_allowed():
    read, write, mmap, fork, exit_group, getrandom, execve, futex = 0, 1, 9, 57, 231, 318, 59, 202
    for number in (read, write, mmap, fork, exit_group, getrandom, execve, futex):
        assert decide(number) == ALLOWED


def test_processes_and_threads_are_made_without_namespaces():
    thread = 0x3D0F00
    assert decide(56, 17) == decide(56, thread) == ALLOWED
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(56, flag | 17) == refused(errno.EPERM)
    assert decide(435) == refused(errno.ENOSYS)


def test_sockets_stay_in_the_sandbox():
    for number in (41, 53):
        assert decide(number, 1) == ALLOWED
        for family in (0, 2, 10, 16, 17, 40):
            assert decide(number, family) == refused(errno.EAFNOSUPPORT)


def test_terminals_are_not_spoken_for():
    assert decide(16, 0, 0x5401) == ALLOWED
    assert decide(16, 0, 0x5412) == decide(16, 0, 0x541C) == refused(errno.EPERM)


def test_pipes_and_files_are_made_and_devices_are_not():
    for kind in (0o010000, 0o100000, 0):
        assert decide(133, 0, kind | 0o666) == decide(259, 0, 0, kind | 0o666) == ALLOWED
    for kind in (0o020000, 0o060000):
        assert decide(133, 0, kind | 0o666) == decide(259, 0, 0, kind | 0o666) == refused(errno.EPERM)


def test_a_place_in_the_queue_can_only_be_given_up():
    assert decide(141, 0, 0, 5) == ALLOWED
    assert decide(141, 0, 0, -5 & 0xFFFFFFFF) == refused(errno.EPERM)


def test_other_ways_of_calling_are_the_end():
    assert decide(0, arch=I386) == KILLED
    assert decide(0x40000000) == KILLED
    assert decide(450) == refused(errno.ENOSYS)


def test_other_machines_have_no_filter():
    with pytest.raises(UnsupportedMachine, match="aarch64"):
        build_filter("aarch64")
