"""Small files with few system calls: read, create, replace atomically, check a lock, remove a tree."""

import fcntl
import os
import secrets
from pathlib import Path

_CHUNK = 1 << 16


def is_locked(path: str) -> bool:
    """Return whether a process holds the lock on the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_file(path: str) -> bytes:
    """Return the content of a regular file; empty if it does not exist.

    It uses system calls directly, because each step reads several files.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        data = chunk = os.read(descriptor, _CHUNK)
        while len(chunk) == _CHUNK:
            chunk = os.read(descriptor, _CHUNK)
            data += chunk
    finally:
        os.close(descriptor)
    return data


def create_file(path: str, data: bytes) -> None:
    """Create a private file.

    Raises:
        FileExistsError: The file exists.
        OSError: The write failed; the file may be incomplete.
    """
    descriptor = private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def replace_file(path: str, text: str) -> None:
    """Write a text file atomically, so that a kill cannot leave it truncated."""
    draft = f"{path}.tmp"
    with open(draft, "w", encoding="utf-8", errors="surrogateescape", opener=private) as file:
        file.write(text)
    Path(draft).replace(path)


def remove_tree(path: str) -> None:
    """Remove a folder of any depth; this may take long.

    Raises:
        OSError: Some entries cannot be removed.
    """
    name, found = f"{path}/.{secrets.token_hex(8)}-", [Path(path)]
    found[0].chmod(0o700)
    for folder in found:  # the loop extends the list
        for entry in list(folder.iterdir()):
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
                continue
            # A step may have made its folders read-only, as Go does with modules.
            entry.chmod(0o700)
            # Move the folder to the top, because recursion depth and path length are limited.
            found.append(entry.rename(f"{name}{len(found)}"))
        if folder != found[0]:
            folder.rmdir()
    found[0].rmdir()


def private(path: str, flags: int) -> int:
    """Open a file with mode 0600 (an opener for `open`)."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
