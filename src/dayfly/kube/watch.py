"""One watch: lines of JSON from a stream, decoded slim, until the server or the network ends it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Generic, Literal, TypeVar

import msgspec

from dayfly.kube import answers, errors
from dayfly.kube.client import Client
from dayfly.kube.depth import cut
from dayfly.kube.forms import accept, given
from dayfly.kube.objects import HasMeta, ObjectMeta, Resource, Slim, Status
from dayfly.kube.transport import LostError, Request

T = TypeVar("T", bound=HasMeta)
Kind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class WatchEvent(Slim, Generic[T], frozen=True):
    """A change; its object is as after it, for DELETED as it was last, with the version of the deletion."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


@dataclasses.dataclass(frozen=True, slots=True)
class Bookmark:
    """Proof that nothing up to this version was missed."""

    resource_version: str


class _WatchLine(msgspec.Struct, gc=False):
    """Anything that a watch tells, with its object as it came."""

    type: Kind
    object: msgspec.Raw


class _OnlyMeta(Slim, frozen=True):
    metadata: ObjectMeta


@dataclasses.dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: how long the server is to keep a watch, and how long silence is believed to be silence."""

    lifetime: int = 300
    silence: float = 90.0  # bookmarks come about every minute


async def watch(
    client: Client,
    resource: Resource[T],
    resource_version: str,
    *,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    patience: Patience | None = None,
) -> AsyncGenerator[WatchEvent[T] | Bookmark, None]:
    """All changes after a version, in order. Ends when the server ends it: go on from the last version seen.

    Raises:
        errors.Gone: the version is compacted away (as an answer or as an event): list again.
        errors.ServerTrouble: the stream broke or fell silent: go on from the last version seen.
    """
    patience = patience or Patience()
    query = given(
        watch="true",
        allowWatchBookmarks="true",
        resourceVersion=resource_version,
        timeoutSeconds=str(patience.lifetime),
        labelSelector=labels,
        fieldSelector=fields,
    )
    request = Request("GET", resource.path(namespace), query, accept=accept(resource))
    async with (
        client.stream(request) as stream,
        contextlib.aclosing(_lines(request, stream.chunks, patience.silence)) as lines,
    ):
        async for line in lines:
            yield _event(request, resource, line)


async def _lines(request: Request, chunks: AsyncIterator[bytes], silence: float) -> AsyncGenerator[bytes, None]:
    """Whole lines. Bytes of one line may come in many pieces, and one piece may hold many lines."""
    rest: list[bytes] = []
    pieces = aiter(chunks)
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise errors.ServerTrouble(str(request), f"the watch was silent for {silence:g} s") from None
        except LostError as fault:
            raise errors.ServerTrouble(str(request), f"the watch broke: {fault}") from fault
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest.append(line)
            joined = b"".join(rest)
            rest.clear()
            if joined:
                yield joined
        if last:
            rest.append(last)


def _event(request: Request, resource: Resource[T], line: bytes) -> WatchEvent[T] | Bookmark:
    try:
        return _decoded(request, resource, line)
    except RecursionError:
        return _decoded(request, resource, cut(line))


def _decoded(request: Request, resource: Resource[T], line: bytes) -> WatchEvent[T] | Bookmark:
    try:
        try:
            event: WatchEvent[T] = _decoder(resource.model).decode(line)
        except msgspec.ValidationError:
            if (bookmark := _other(request, line)) is not None:
                return bookmark
            raise
        return event
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise errors.ServerTrouble(str(request), f"cannot read an event: {fault}") from fault


def _other(request: Request, line: bytes) -> Bookmark | None:
    """What is no change of an object: a bookmark, or trouble, which is raised. None for a change nobody can read."""
    head = _LINE.decode(line)
    if head.type == "ERROR":
        raise _trouble(request, _STATUS.decode(head.object))
    return Bookmark(_META.decode(head.object).metadata.resource_version) if head.type == "BOOKMARK" else None


def _trouble(request: Request, status: Status) -> errors.ApiError:
    if answers.FIRST_REFUSAL <= status.code < answers.FIRST_TROUBLE and status.code != answers.THROTTLED:
        return answers.refusal(str(request), status, status.code)
    return errors.ServerTrouble(str(request), status.message, status=status.code, reason=status.reason)


_LINE = msgspec.json.Decoder(_WatchLine)
_META = msgspec.json.Decoder(_OnlyMeta)
_STATUS = msgspec.json.Decoder(Status)


@functools.cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(WatchEvent[kind])  # type: ignore[valid-type] # a type made at run time
