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
from dayfly.cli.mcp.agent_api import AgentSession, CallerKeys
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


def build_server(access: Access, files: ConnectionFiles | None) -> MCPServer[Any]:  # noqa: C901 # one function for each tool
    """Return the MCP server.

    Args:
        access: Lends the REST API for the key of a request.
        files: The files of `connect`; None if the agent runs on another machine.
    """
    server: MCPServer[Any] = MCPServer("dayfly", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")

    async def run(ctx: Context, work: Callable[[Tools], Awaitable[dict[str, Any]]]) -> str:
        try:
            async with asyncio.timeout(MAX_CALL_S), access.use(ctx.headers) as api:
                return json.dumps(await work(Tools(api, files)), ensure_ascii=True)
        except TimeoutError:
            raise ToolError(f"no answer within {MAX_CALL_S} s; the work may continue: call wait or list") from None
        except (DayflyError, SpecError) as fault:
            advice = getattr(fault, "advice", "")
            raise ToolError(f"{fault}; {advice}" if advice and advice not in str(fault) else str(fault)) from None

    def tool(**hints: bool) -> Callable[[Any], Any]:
        """Return a decorator that adds a tool with these annotations."""
        annotations = ToolAnnotations(
            read_only_hint=hints.get("read", False),
            destructive_hint=hints.get("destroys", False),
            idempotent_hint=hints.get("repeatable", True),
            open_world_hint=False,
        )
        return server.tool(annotations=annotations, structured_output=False)

    @tool(read=True)
    async def find(
        ctx: Context, need: Annotated[str, Field(description="Words, like: postgres database; empty: all.")] = ""
    ) -> str:
        """Find plugins that create a resource, with their allowed params and their outputs."""
        return await run(ctx, lambda tools: tools.find(need))

    @tool(read=True)
    async def plan(ctx: Context, resources: list[ResourceChoice], ttl: Ttl = "") -> str:
        """Show the steps that create and delete would run, and the budget. Changes nothing."""
        return await run(ctx, lambda tools: tools.plan(_dump(resources), ttl))

    @tool()
    async def create(
        ctx: Context,
        name: Annotated[str, Field(description="Short name, like db. The session is added in front.")],
        resources: list[ResourceChoice],
        ttl: Ttl = "",
        cluster: Annotated[str, Field(description="Only if there are several.")] = "",
    ) -> str:
        """Create a sandbox with resources. Returns its name at once; call connect next. It changes no existing one."""
        return await run(ctx, lambda tools: tools.create(name, _dump(resources), ttl, cluster))

    @tool(read=True)
    async def wait(
        ctx: Context, sandbox: Sandbox, seconds: Annotated[int, Field(description="At most 40.")] = 40
    ) -> str:
        """Wait until a sandbox is ready or has failed. If it is not ready yet, call it again."""
        return await run(ctx, lambda tools: tools.wait(sandbox, seconds, ctx.report_progress))

    if files is not None:

        @tool()
        async def connect(ctx: Context, sandbox: Sandbox) -> str:
            """Wait until a sandbox is ready, and write its outputs to a private file. Returns the path."""
            return await run(ctx, lambda tools: tools.connect(sandbox, ctx.report_progress))

    else:

        @tool(read=True)
        async def connect(ctx: Context, sandbox: Sandbox) -> str:
            """Wait until a sandbox is ready. Returns a command for your shell that writes its outputs to a file."""
            return await run(ctx, lambda tools: tools.connect(sandbox, ctx.report_progress))

    @tool(destroys=True, repeatable=False)
    async def reset(ctx: Context, sandbox: Sandbox, resource: Annotated[str, Field(description="Its name.")]) -> str:
        """Replace a resource from a pool by a new one. Its data is lost."""
        return await run(ctx, lambda tools: tools.reset(sandbox, resource))

    @tool(read=True)
    async def why(ctx: Context, sandbox: Sandbox) -> str:
        """Explain why a sandbox is not ready or not gone, down to the root cause."""
        return await run(ctx, lambda tools: tools.why(sandbox))

    @tool(read=True)
    async def logs(
        ctx: Context,
        sandbox: Sandbox,
        unit: Annotated[str, Field(description="Like db/provision; empty: list the units.")] = "",
        lines: Annotated[int, Field(description="At most 200.")] = 50,
    ) -> str:
        """Read the end of a step's log."""
        return await run(ctx, lambda tools: tools.logs(sandbox, unit, lines))

    @tool(repeatable=False)
    async def extend(ctx: Context, sandbox: Sandbox, minutes: Annotated[int, Field(description="From now.")]) -> str:
        """Let a sandbox live longer. Uses budget."""
        return await run(ctx, lambda tools: tools.extend(sandbox, minutes))

    @tool(read=True)
    async def list(ctx: Context) -> str:  # noqa: A001 # the name of the tool
        """List the sandboxes of this session, and what is left of the limits."""
        return await run(ctx, lambda tools: tools.list())

    @tool(destroys=True)
    async def delete(ctx: Context, sandbox: Sandbox) -> str:
        """Delete a sandbox of this session with its data."""
        return await run(ctx, lambda tools: tools.delete(sandbox))

    return server


async def serve_stdio(address: Address, lease_s: int) -> None:
    """Serve one agent on stdin and stdout until stdin ends; then end its session.

    The first call starts the session, so the server may start later than the agent.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="dayfly mcp: %(message)s")
    session, files = AgentSession(address, lease_s), ConnectionFiles()
    stop = server_process.stop_on_signals()
    serving = asyncio.create_task(build_server(session, files).run_stdio_async())
    stopping = asyncio.create_task(stop.wait())
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


async def serve_http(address: Address, sock: socket.socket) -> None:
    """Serve agents over streamable HTTP at `/mcp`. Each request has the key of its agent."""
    host, port = sock.getsockname()[:2]
    stop = server_process.stop_on_signals()
    app = build_server(CallerKeys(address), None).streamable_http_app(stateless_http=True, host=host)
    show.print_message(f"dayfly mcp serves at http://{f'[{host}]' if ':' in host else host}:{port}/mcp")
    await http_server.serve(app, [sock], stop=stop, lifespan="on")


def _dump(resources: list[ResourceChoice]) -> list[dict[str, Any]]:
    return [each.model_dump() for each in resources]
