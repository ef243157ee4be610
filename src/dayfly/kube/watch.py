"""A single watch: JSON lines from a stream, decoded to events, until the server or the network ends it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Generic, Literal, TypeVar

import msgspec

from dayfly.kube import answers, errors
from dayfly.kube.answers import truncate_nested
from dayfly.kube.client import KubeClient
from dayfly.kube.forms import accept, query_params
from dayfly.kube.objects import ApiResource, HasMeta, KubeStruct, ObjectMeta, ResponseStatus
from dayfly.kube.transport import KubeRequest, LostError

T = TypeVar("T", bound=HasMeta)
Kind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class WatchEvent(KubeStruct, Generic[T], frozen=True):
    """A change with the object after it; for DELETED, the last state with the resource version of the deletion."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


@dataclasses.dataclass(frozen=True, slots=True)
class Bookmark:
    """A confirmation that all events up to this version were delivered."""

    resource_version: str


class _WatchLine(msgspec.Struct, gc=False):
    """Any line of a watch, with its undecoded object."""

    type: Kind
    object: msgspec.Raw


class _MetadataOnly(KubeStruct, frozen=True):
    metadata: ObjectMeta


@dataclasses.dataclass(frozen=True, slots=True)
class WatchTimeouts:
    """Timeouts in seconds: how long the server keeps a watch, and after which silence it counts as broken."""

    lifetime: int = 300
    silence: float = 90.0  # bookmarks come about every minute


async def watch(
    client: KubeClient,
    resource: ApiResource[T],
    resource_version: str,
    *,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    timeouts: WatchTimeouts | None = None,
) -> AsyncGenerator[WatchEvent[T] | Bookmark, None]:
    """Yield all changes after a version, in order. When the watch ends, the caller starts another at the last version.

    Raises:
        errors.Gone: the version has expired, according to the response or an event: list again.
        errors.ServerError: the stream broke or was silent for too long: continue from the last version.
    """
    timeouts = timeouts or WatchTimeouts()
    query = query_params(
        watch="true",
        allowWatchBookmarks="true",
        resourceVersion=resource_version,
        timeoutSeconds=str(timeouts.lifetime),
        labelSelector=labels,
        fieldSelector=fields,
    )
    request = KubeRequest("GET", resource.path(namespace), query, accept=accept(resource))
    async with (
        client.stream(request) as stream,
        contextlib.aclosing(_lines(request, stream.chunks, timeouts.silence)) as lines,
    ):
        async for line in lines:
            yield _decode_line(request, resource, line)


async def _lines(request: KubeRequest, chunks: AsyncIterator[bytes], silence: float) -> AsyncGenerator[bytes, None]:
    """Yield complete lines. A chunk may contain a part of a line, or several lines."""
    rest: list[bytes] = []
    pieces = aiter(chunks)
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise errors.ServerError(str(request), f"the watch was silent for {silence:g} s") from None
        except LostError as fault:
            raise errors.ServerError(str(request), f"the watch broke: {fault}") from fault
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest.append(line)
            joined = b"".join(rest)
            rest.clear()
            if joined:
                yield joined
        if last:
            rest.append(last)


def _decode_line(request: KubeRequest, resource: ApiResource[T], line: bytes) -> WatchEvent[T] | Bookmark:
    """Decode a line. Parts that are nested too deeply for the decoder are cut."""
    try:
        return _decode_event(request, resource, line)
    except RecursionError:
        return _decode_event(request, resource, truncate_nested(line))


def _decode_event(request: KubeRequest, resource: ApiResource[T], line: bytes) -> WatchEvent[T] | Bookmark:
    try:
        try:
            event: WatchEvent[T] = _decoder(resource.model).decode(line)
        except msgspec.ValidationError:
            # Most lines are changes, so the types of other lines are examined only after this failure.
            if (bookmark := _bookmark_or_error(request, line)) is not None:
                return bookmark
            raise
        return event
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise errors.ServerError(str(request), f"cannot read an event: {fault}") from fault


def _bookmark_or_error(request: KubeRequest, line: bytes) -> Bookmark | None:
    """Return a bookmark, raise an error, or return None for an event of an object that cannot be decoded."""
    head = _LINE.decode(line)
    if head.type == "ERROR":
        raise _status_error(request, _STATUS.decode(head.object))
    return Bookmark(_META.decode(head.object).metadata.resource_version) if head.type == "BOOKMARK" else None


def _status_error(request: KubeRequest, status: ResponseStatus) -> errors.ApiError:
    if answers.FIRST_REFUSAL <= status.code < answers.FIRST_SERVER_ERROR and status.code != answers.THROTTLED:
        return answers.error_of_status(str(request), status, status.code)
    return errors.ServerError(str(request), status.message, status=status.code, reason=status.reason)


_LINE = msgspec.json.Decoder(_WatchLine)
_META = msgspec.json.Decoder(_MetadataOnly)
_STATUS = msgspec.json.Decoder(ResponseStatus)


@functools.cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(WatchEvent[kind])  # type: ignore[valid-type] # a type made at run time
