"""The MCP server: the tools with their descriptions and annotations, over stdio or streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

from dayfly import __version__
from dayfly.cli.local import server_process
from dayfly.cli.mcp.agent_api import CallerKeys, ServedSession
from dayfly.cli.mcp.connection_files import ConnectionFiles
from dayfly.cli.mcp.tools import Tools
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.lib import http_server
from dayfly.spec.errors import SpecError

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from dayfly.cli.mcp.tools import Access
    from dayfly.client.address import Address

INSTRUCTIONS = (
    "Private databases, queues and other resources for tests. Usual order: find, create, connect. Values of outputs "
    "are only in the file of connect: never print them. All sandboxes of a session are deleted when it ends."
)

MAX_CALL_S = 45

Sandbox = Annotated[str, Field(description="Name of the sandbox.")]
Ttl = Annotated[str, Field(description="Time to live, like 30m or 8h; empty: the longest allowed, in a session.")]


class ResourceChoice(BaseModel):
    """A resource of a sandbox."""

    name: str = Field(description="Name in the sandbox, like db.")
    plugin: str = Field(description="Plugin of find.")
    params: dict[str, str] = Field(default={}, description="Allowed params.")


Resources = list[ResourceChoice]


def _annotate(*, read: bool = False, destroys: bool = False, repeatable: bool = True) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=read, destructive_hint=destroys, idempotent_hint=repeatable, open_world_hint=False
    )


_READ, _CHANGE = _annotate(read=True), _annotate()


class ToolCalls:
    """The tools as functions for the SDK, which derives their descriptions and parameters from them."""

    def __init__(self, access: Access, files: ConnectionFiles | None) -> None:
        self._access = access
        self._files = files

    async def _run(self, ctx: Context, work: Callable[[Tools], Awaitable[dict[str, Any]]]) -> str:
        try:
            async with asyncio.timeout(MAX_CALL_S), self._access.use(ctx.headers) as api:
                return json.dumps(await work(Tools(api, self._files)), ensure_ascii=True)
        except TimeoutError:
            raise ToolError(f"no answer within {MAX_CALL_S} s; the work may continue: call wait or list") from None
        except (DayflyError, SpecError) as fault:
            advice = getattr(fault, "advice", "")
            raise ToolError(f"{fault}; {advice}" if advice and advice not in str(fault) else str(fault)) from None

    async def find(
        self, ctx: Context, need: Annotated[str, Field(description="Words, like: postgres database; empty: all.")] = ""
    ) -> str:
        """Find plugins that create a resource, with their allowed params and their outputs."""
        return await self._run(ctx, lambda tools: tools.find(need))

    async def plan(self, ctx: Context, resources: Resources, ttl: Ttl = "") -> str:
        """Show the steps that create and delete would run, and the budget. Changes nothing."""
        return await self._run(ctx, lambda tools: tools.plan(_dump(resources), ttl))

    async def create(
        self,
        ctx: Context,
        name: Annotated[str, Field(description="Short name, like db. The session is added in front.")],
        resources: Resources,
        ttl: Ttl = "",
        cluster: Annotated[str, Field(description="Only if there are several.")] = "",
    ) -> str:
        """Create a sandbox with resources. Returns its name at once; call connect next. It changes no existing one."""
        return await self._run(ctx, lambda tools: tools.create(name, _dump(resources), ttl, cluster))

    async def wait(
        self, ctx: Context, sandbox: Sandbox, seconds: Annotated[int, Field(description="At most 40.")] = 40
    ) -> str:
        """Wait until a sandbox is ready or has failed. If it is not ready yet, call it again."""
        return await self._run(ctx, lambda tools: tools.wait(sandbox, seconds, ctx.report_progress))

    async def connect(self, ctx: Context, sandbox: Sandbox) -> str:
        """Wait until a sandbox is ready, and write its outputs to a private file. Returns the path."""
        return await self._run(ctx, lambda tools: tools.connect(sandbox, ctx.report_progress))

    async def reset(
        self, ctx: Context, sandbox: Sandbox, resource: Annotated[str, Field(description="Its name.")]
    ) -> str:
        """Replace a resource from a pool by a new one. Its data is lost."""
        return await self._run(ctx, lambda tools: tools.reset(sandbox, resource))

    async def why(self, ctx: Context, sandbox: Sandbox) -> str:
        """Explain why a sandbox is not ready or not gone, down to the root cause."""
        return await self._run(ctx, lambda tools: tools.why(sandbox))

    async def logs(
        self,
        ctx: Context,
        sandbox: Sandbox,
        unit: Annotated[str, Field(description="Like db/provision; empty: list the units.")] = "",
        lines: Annotated[int, Field(description="At most 200.")] = 50,
    ) -> str:
        """Read the end of a step's log."""
        return await self._run(ctx, lambda tools: tools.logs(sandbox, unit, lines))

    async def extend(
        self, ctx: Context, sandbox: Sandbox, minutes: Annotated[int, Field(description="From now.")]
    ) -> str:
        """Let a sandbox live longer. Uses budget."""
        return await self._run(ctx, lambda tools: tools.extend(sandbox, minutes))

    async def list(self, ctx: Context) -> str:
        """List the sandboxes of this session, and what is left of the limits."""
        return await self._run(ctx, lambda tools: tools.list())

    async def delete(self, ctx: Context, sandbox: Sandbox) -> str:
        """Delete a sandbox of this session with its data."""
        return await self._run(ctx, lambda tools: tools.delete(sandbox))


class RemoteToolCalls(ToolCalls):
    """The tools for agents on other machines, where this process cannot write files."""

    async def connect(self, ctx: Context, sandbox: Sandbox) -> str:
        """Wait until a sandbox is ready. Returns a command for your shell that writes its outputs to a file."""
        return await super().connect(ctx, sandbox)


def build_server(access: Access, files: ConnectionFiles | None) -> MCPServer[Any]:
    """Return the MCP server.

    Args:
        access: Lends the REST API for the key of a request.
        files: The files of `connect`; None if the agent runs on another machine.
    """
    server: MCPServer[Any] = MCPServer("dayfly", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    calls = RemoteToolCalls(access, files) if files is None else ToolCalls(access, files)
    tools: dict[str, tuple[Callable[..., Awaitable[str]], ToolAnnotations]] = {
        "find": (calls.find, _READ),
        "plan": (calls.plan, _READ),
        "create": (calls.create, _CHANGE),
        "wait": (calls.wait, _READ),
        "connect": (calls.connect, _READ if files is None else _CHANGE),
        "reset": (calls.reset, _annotate(destroys=True, repeatable=False)),
        "why": (calls.why, _READ),
        "logs": (calls.logs, _READ),
        "extend": (calls.extend, _annotate(repeatable=False)),
        "list": (calls.list, _READ),
        "delete": (calls.delete, _annotate(destroys=True)),
    }
    for name, (call, hints) in tools.items():
        server.add_tool(call, name=name, annotations=hints, structured_output=False)
    return server


async def serve_stdio(address: Address, lease_s: int) -> int:
    """Serve one agent on stdin and stdout until stdin ends; then end its session. Return the exit code.

    The first call starts the session, so the server may start later than the agent. A wrong address or key is reported
    at once, and is the exit code if no session was started.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="dayfly mcp: %(message)s")
    session, files = ServedSession(address, lease_s), ConnectionFiles()
    stop = server_process.stop_on_signals()
    serving = asyncio.create_task(build_server(session, files).run_stdio_async())
    stopping = asyncio.create_task(stop.wait())
    checking = asyncio.create_task(_report_problem(session))
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        files.close()
        await session.close()
    if not serving.done():
        files.close()  # a call may have been writing one
        os._exit(Exit.OK)  # the thread that reads stdin cannot be interrupted
    stopping.cancel()
    await serving
    return Exit.OK if session.is_used else await checking


async def serve_http(address: Address, sock: socket.socket) -> None:
    """Serve agents over streamable HTTP at `/mcp`. Each request has the key of its agent."""
    host, port = sock.getsockname()[:2]
    stop = server_process.stop_on_signals()
    access = CallerKeys(address)
    app = build_server(access, None).streamable_http_app(stateless_http=True, host=host)
    show.print_message(f"dayfly mcp serves at http://{f'[{host}]' if ':' in host else host}:{port}/mcp")
    checking = asyncio.create_task(_report_problem(access))
    await http_server.serve(app, [sock], stop=stop, lifespan="on")
    checking.cancel()


async def _report_problem(access: Access) -> int:
    """Print why calls will fail, if the server or the key cannot be used now. Return the exit code for that."""
    try:
        await access.check()
    except DayflyError as fault:
        show.print_message(f"dayfly mcp: {fault}")
        return fault.code
    return Exit.OK


def _dump(resources: Resources) -> list[dict[str, Any]]:
    return [each.model_dump() for each in resources]
