"""The limits of one sandbox, in bytes and seconds."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one sandbox.

    `memory_bytes` is for all processes together, `work_bytes` for the files in the work folder, which are in memory
    too. `call_s` is the wall-clock time of a call, `cpu_s` the CPU time of each process in its life. Interrupted code
    has `interrupt_s` to end. `open_files` and `file_bytes` are for each process and file. Output beyond `output_bytes`
    is dropped, and a call that prints `flood_bytes` is interrupted.
    """

    memory_bytes: int = 1024 * MIB
    work_bytes: int = 256 * MIB
    scratch_bytes: int = 32 * MIB
    num_inodes: int = 20_000
    num_processes: int = 32
    open_files: int = 128
    file_bytes: int = 256 * MIB
    cpu_s: int = 1800
    call_s: float = 60.0
    interrupt_s: float = 2.0
    output_bytes: int = MIB
    flood_bytes: int = 16 * MIB
    num_images: int = 8
    image_bytes: int = 4 * MIB
    num_files: int = 1000
    idle_cpu_s: float = 2.0
