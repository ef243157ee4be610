"""A separate `/tmp` and `/dev/shm`, so that files of other programs do not affect the measurements.

Every entry of `/tmp` is mounted into the private directory of each step. On a machine with a full `/tmp` a benchmark
would measure mainly these mounts.
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
    """Give this process and its children a `/tmp` with as many entries as a quiet machine has. It needs root.

    Without root, or if the checkout is in `/tmp`, it stays unchanged. The report contains its number of entries.
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
    # Otherwise Dayfly would consider homes in the machine's /tmp as deleted, and remove their files in /dev/shm.
    for place in (bytes(TMP), b"/dev/shm"):
        _check(library.mount(b"bench", place, b"tmpfs", ctypes.c_ulong(0), b"mode=1777"))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
