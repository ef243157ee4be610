"""All verbs by name, each imported when it is called, and the one place where failures become a line and a code."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from dayfly import __version__
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM = "dayfly"
COMPLETION = "_DAYFLY_COMPLETE"
"""The variable by which a shell asks for completions."""

_VERBS = {
    "up": "Run the server of this home.",
    "down": "Stop the server; the next one takes over its running steps.",
    "status": "Show the state of the server and all sandboxes, worst first.",
    "apply": "Apply plugins, baselines, sandboxes and groups from files.",
    "plan": "Show what files would do, without doing it.",
    "manifest": "Print what is in files as Kubernetes objects for kubectl.",
    "explain": "Explain a kind of file, or one of its fields.",
    "schema": "Print the JSON Schema of a kind of file, for editors.",
    "sandbox": "Apply, get, list, extend and delete sandboxes (sb).",
    "routegroup": "Apply, get, list, extend and delete route groups (rg).",
    "plugin": "Start, check, test, apply, get, list, delete plugins (rp).",
    "get": "Show the state of sandboxes, resources or route groups.",
    "logs": "Show the logs of a sandbox's steps and forks.",
    "why": "Explain what a sandbox is waiting for, down to the root cause.",
    "env": "Print a sandbox's outputs as a dotenv file.",
    "state": "List the stored Terraform states, or print one.",
    "with": "Provision a plugin, run a command with its outputs, clean up.",
    "retry": "Retry now, without waiting for the next scheduled retry.",
    "abandon": "Give up a cleanup that has begun; your reason is recorded.",
    "server": "Run a server for many people and clusters.",
    "login": "Store a server's address and key, for --server NAME.",
    "key": "Create, list and delete API keys.",
    "cluster": "Add, list and remove clusters, and the tokens of their agents.",
    "audit": "Show or check who changed what.",
    "page": "Open the page of the server in a browser.",
    "operator": "Run the operator of a Kubernetes cluster.",
    "routeserver": "Tell programs which routing key leads to which fork.",
    "completion": "Print the completion script of a shell.",
}
_EXIT_CODES = (
    "Exit codes: 0 done, 1 failed, 2 the command line or a file is wrong, "
    "3 not found, 4 timed out, 5 denied, 6 no server."
)
_MEANT = {
    "delete": "sandbox delete",
    "rm": "sandbox delete",
    "list": "sandbox list",
    "ls": "sandbox list",
    "create": "apply -f",
    "describe": "get",
    "diff": "plan -f",
    "init": "plugin init",
    "lint": "plugin lint",
    "start": "up",
    "stop": "down",
}
"""What those mean by a word who know it from elsewhere."""
_MODULES = {"with": "with_command"}
"""The modules of verbs that are keywords of Python."""
_ALIASES = {"sb": "sandbox", "rg": "routegroup", "rp": "plugin", "resourceplugin": "plugin"}


class LazyGroup(click.Group):
    """A group whose commands are modules of this room, imported one at a time."""

    def __init__(self, name: str, *, modules: Mapping[str, str], aliases: Mapping[str, str], help: str) -> None:  # noqa: A002 # click's own word
        settings = {"help_option_names": ["-h", "--help"]}
        super().__init__(name, help=help, epilog=_EXIT_CODES, context_settings=settings)
        self.modules = modules
        self.aliases = aliases

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # click's signature
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 # click's signature
        name = self.aliases.get(cmd_name, cmd_name)
        if name not in self.modules:
            return None
        module = importlib.import_module(f"dayfly.cli.commands.{_MODULES.get(name, name)}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        wanted = args[0]
        if not ctx.resilient_parsing and not wanted.startswith("-") and self.get_command(ctx, wanted) is None:
            import difflib

            if ctx.parent is None and wanted in _MEANT:
                ctx.fail(f'no such command "{wanted}"; did you mean: {PROGRAM} {_MEANT[wanted]}')
            close = difflib.get_close_matches(wanted, [*self.modules, *self.aliases], n=1, cutoff=0.5)
            ctx.fail(f'no such command "{wanted}"{f"; did you mean {close[0]}?" if close else ""}')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 # click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(self.modules.items()))


root: click.Group = LazyGroup(
    PROGRAM,
    modules=_VERBS,
    aliases=_ALIASES,
    help="Short-lived resources for sandboxes: created once, wired in, certainly gone afterwards.",
)
root = click.version_option(__version__, message="%(prog)s %(version)s")(root)


def run(arguments: list[str]) -> int:
    """Carry out one command line; whatever goes wrong ends as one line on stderr and an exit code."""
    try:
        return _run(arguments)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                # Nobody takes it (a pipe without a reader, a full disk), which has been said or cannot be. Else the
                # interpreter tries again while it ends, complains, and makes the code 120.
                from dayfly.cli.output.show import hush

                hush(stream)


def _run(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # the interpreter's own are text files
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited from who does not care for its children. We do: ignored, the kernel throws away how ours ended.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if instruction := os.environ.get(COMPLETION):
        from click.shell_completion import shell_complete

        import dayfly.cli.completions  # noqa: F401 # has a word of its own to say to bash

        return shell_complete(root, {}, PROGRAM, COMPLETION, instruction)
    try:
        # Not `root.main`: it has its own opinion of interrupts and closed pipes.
        with root.make_context(PROGRAM, arguments) as context:
            result = root.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else Exit.OK
    except click.exceptions.Exit as end:  # --help and --version end this way
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as fault:
        sys.stderr.write(f"{fault.format_message()}\n")
        return Exit.USAGE
    except BrokenPipeError:
        return 128 + 13  # whoever read our output has seen enough
    except click.exceptions.Abort:  # at a question, before anything was asked of anybody
        return _say("interrupted; nothing was done", 128 + 2)
    except KeyboardInterrupt:
        return _say("interrupted; the server goes on with what it was asked to do, see: dayfly status", 128 + 2)
    except Exception as fault:  # noqa: BLE001 # the last line of defence: no traceback ever
        return _fault(fault)


def _fault(fault: Exception) -> int:
    match fault:
        case DayflyError():
            return _say(str(fault), fault.code)
        case SpecError():
            for line in fault.lines():
                _say(line, Exit.USAGE)
            return Exit.USAGE
        case click.NoSuchOption() if words := _instead(fault):
            return _say(words, Exit.USAGE)
        case click.UsageError():
            path = fault.ctx.command_path if fault.ctx else PROGRAM
            message = " ".join(fault.format_message().split()).rstrip(".")
            return _say(f"{message}; see: {path} --help", Exit.USAGE)
        case click.ClickException():
            return _say(fault.format_message(), Exit.USAGE)
        case PermissionError():
            return _say(f"{_words(fault)}; run it as the user who owns this home", Exit.DENIED)
        case OSError(errno=errno.ENOSPC):
            return _say(f"{_words(fault)}; free some space and try again", Exit.FAILED)
        case OSError():
            return _say(f"{_words(fault)}; fix that and try again", Exit.FAILED)
        case _:
            return _say(f"internal error, {type(fault).__name__}; the details are in {_written(fault)}", Exit.FAILED)


def _instead(fault: click.NoSuchOption) -> str:
    """What to type at a place that this verb does not ask."""
    from dayfly.cli import unsupported_options

    return unsupported_options.words(fault.option_name, fault.ctx)


def _words(fault: OSError) -> str:
    """What the machine refuses, without its number."""
    reason = fault.strerror or str(fault)
    return f"{fault.filename}: {reason}" if fault.filename else reason


def _written(fault: Exception) -> str:
    """Keep the traceback for a bug report; the path of the file."""
    import tempfile
    import traceback

    from dayfly.client.home import Home

    home = Home.find()
    folder = home.path
    writable = folder.is_dir() and os.access(folder, os.W_OK)
    try:
        home.check()
    except DayflyError:
        writable = False
    handle, path = tempfile.mkstemp(prefix="crash-", suffix=".txt", dir=folder if writable else None)
    with os.fdopen(handle, "w", errors="backslashreplace") as file:
        traceback.print_exception(fault, file=file)
    return path


def _say(message: str, code: int) -> int:
    from dayfly.cli.output.show import plain

    with contextlib.suppress(OSError):
        sys.stdout.flush()  # where both lead to one log, what went wrong stands below what was printed before
    with contextlib.suppress(OSError):  # stderr is closed: there is nobody left to tell
        sys.stderr.write(f"{PROGRAM}: {plain(' '.join(message.split()))}\n")
    return int(code)
