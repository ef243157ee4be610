"""Several things of which each is to be done, whatever becomes of those before."""

from collections.abc import Awaitable, Iterable


async def each_done(parts: Iterable[Awaitable[object]], spared: tuple[type[Exception], ...]) -> None:
    """Do one after the other; after one that ends in what is spared the next one is done all the same.

    Raises:
        Exception: the first that was spared, once all were tried; any other at once.
    """
    first: Exception | None = None
    for part in parts:
        try:
            await part
        except spared as error:
            first = first or error
    if first is not None:
        raise first
