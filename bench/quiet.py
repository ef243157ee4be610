"""A `/tmp` of our own, so that what others have left there does not count, and a `/dev/shm` with it.

Every step sees the entries of `/tmp` one by one (each is bound into its private directory), so on a machine with a
crowded `/tmp` a bench would measure the crowd.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from bench.rows import ROOT

TMP = Path("/tmp")
ENTRIES = 16
_CLONE_NEWNS = 0x20000
_MS_REC_PRIVATE = 0x4000 | 0x40000


def own_tmp() -> None:
    """Give this process and its children a `/tmp` with as many entries as a quiet machine has; needs root rights.

    Without them, or if the checkout itself lies there, `/tmp` stays as it is; the report says how full it was.
    """
    if ROOT.is_relative_to(TMP):
        return
    with contextlib.suppress(PermissionError):
        _enter()
        for number in range(ENTRIES // 2):
            (TMP / f"folder-{number}").mkdir()
            (TMP / f"file-{number}").touch()


def _enter() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    _check(library.unshare(_CLONE_NEWNS))
    _check(library.mount(None, b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None))
    # Of homes in the machine's own /tmp we would think that they are gone, and sweep what they have in /dev/shm away.
    for place in (bytes(TMP), b"/dev/shm"):
        _check(library.mount(b"bench", place, b"tmpfs", ctypes.c_ulong(0), b"mode=1777"))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
