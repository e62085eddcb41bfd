"""The first process of a process table: runs a command, and collects every process whose parent has ended.

python -m tests.tools.drills.first COMMAND...
"""

import os
import sys


def main(command: list[str]) -> int:
    """Run the command to its end; return its exit status."""
    child = os.fork()
    if child == 0:
        os.execvp(command[0], command)
    while True:
        pid, status = os.wait()
        if pid == child:
            return abs(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
