# ruff: noqa: INP001 - beside image.py, which imports it from this folder
"""Headers of 64-bit ELF files, of any machine: this machine cannot execute them."""

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path

MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine, by the names of `uname -m`
_LOAD, _DYNAMIC = 1, 2  # types of segments
_NEEDED, _STRINGS = 1, 5  # tags of the dynamic section
_SEGMENT = struct.Struct("<IIQQQQQQ")
_TAG = struct.Struct("<qQ")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program or shared library: its machine, and the names of the libraries that it is linked to."""

    machine: str
    libraries: tuple[str, ...]


def read(path: Path) -> Program | None:
    """Return the headers of a file; None if it is no little-endian 64-bit ELF file of a known machine."""
    return parse(path.read_bytes())


def parse(data: bytes) -> Program | None:
    """Return the headers of the content of a file, as `read`."""
    if not data.startswith(b"\x7fELF\x02\x01"):
        return None
    machine = MACHINES.get(int.from_bytes(data[18:20], "little"))
    return Program(machine, tuple(_libraries(data))) if machine else None


def _libraries(data: bytes) -> Iterator[str]:
    segments = list(_segments(data))
    tags = [tag for kind, start, size, _ in segments if kind == _DYNAMIC for tag in _tags(data[start : start + size])]
    strings = next((_offset(segments, address) for tag, address in tags if tag == _STRINGS), 0)
    for tag, value in tags:
        if tag == _NEEDED:
            begin = strings + value
            yield data[begin : data.index(b"\0", begin)].decode()


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, offset, size and address of each segment."""
    (table,) = struct.unpack_from("<Q", data, 32)
    entry_size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        kind, _, offset, address, _, size, *_ = _SEGMENT.unpack_from(data, table + number * entry_size)
        yield kind, offset, size, address


def _tags(section: bytes) -> Iterator[tuple[int, int]]:
    for position in range(0, len(section) - _TAG.size + 1, _TAG.size):
        yield _TAG.unpack_from(section, position)


def _offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
    """Return the place in the file of an address in memory."""
    return next(
        address - begin + offset
        for kind, offset, size, begin in segments
        if kind == _LOAD and begin <= address < begin + size
    )
