"""Processes that are forked from one that has done their imports, which take most of a short process's time."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
_imported: list[str] = []


def import_first(module: str) -> None:
    """Have the process that all are forked from import this module too; call it before any is started."""
    _imported.append(module)
    FORKS.set_forkserver_preload(_imported)
