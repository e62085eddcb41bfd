"""Code that looks around in a sandbox, and what it says."""

from deployments.tools.sandbox.sandbox import Sandbox

# What every attempt may use: `call` makes a system call and returns 0, or the name of the error.
PRELUDE = """
import ctypes, errno, os
_libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = _libc.syscall(ctypes.c_long(number), *arguments)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
"""


async def look(sandbox: Sandbox, code: str) -> str:
    result = await sandbox.run(PRELUDE + code)
    assert result.status in ("ok", "error"), (result.reason, result.logs)
    return result.logs.strip()
