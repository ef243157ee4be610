"""All verbs by name, imported when called, and the conversion of each failure to a message and an exit code."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` also creates enums, which takes as long as a request
import contextlib
import errno
import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING

import click

from dayfly import __version__
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from click.shell_completion import CompletionItem

PROGRAM = "dayfly"
COMPLETION = "_DAYFLY_COMPLETE"
"""The environment variable with which a shell requests completions."""

GROUPS = {
    "Sandboxes": {
        "apply": "Apply plugins, baselines, pools, sandboxes and groups.",
        "plan": "Show what files would do, without doing it.",
        "get": "Show the state of sandboxes, resources, parents or pools.",
        "why": "Explain what a sandbox is waiting for, down to the root cause.",
        "wait": "Wait until sandboxes are ready, or gone.",
        "history": "Show what happened to a sandbox, step by step.",
        "logs": "Show the logs of a sandbox's steps and forks.",
        "env": "Print a sandbox's outputs as variables, or one of them.",
        "sandbox": "Apply, get, list, extend and delete sandboxes (sb).",
        "routegroup": "Apply, get, list, extend and delete route groups (rg).",
        "with": "Provision a plugin, run a command with its outputs, clean up.",
        "retry": "Retry now, without waiting for the next scheduled retry.",
        "abandon": "Give up a running cleanup; your reason is recorded.",
    },
    "Plugins and files": {
        "plugin": "Start, check, compare, test, apply, get, list, delete plugins (rp).",
        "manifest": "Print files as Kubernetes objects for kubectl.",
        "explain": "Explain a kind of file, or one of its fields.",
        "schema": "Print the JSON Schema of a kind of file, for editors.",
        "state": "List the stored Terraform states, or print one.",
    },
    "Pools": {
        "pool": "List, get, pause, resume, drain, explain, delete pools.",
    },
    "Leaks": {
        "leaks": "Show what plugins have left behind, and delete it by a plan.",
    },
    "This machine": {
        "up": "Run the server of this home.",
        "down": "Stop the server; the next one takes over its running steps.",
        "reset": "Give a resource another pool member, or remove this home.",
        "status": "Show the state of the server and all sandboxes, worst first.",
        "open": "Open the page of the server at a sandbox.",
        "page": "Open the page of the server in a browser.",
    },
    "Shared servers": {
        "login": "Store a server's address and key, for --server NAME.",
        "server": "Run a server for many users and clusters.",
        "key": "Create, list and delete API keys.",
        "cluster": "Add, list and remove clusters, and the tokens of their agents.",
        "audit": "Show or verify the audit log of changes.",
        "usage": "Show how long sandboxes lived, by label.",
        "mcp": "Serve tools for coding agents (Model Context Protocol).",
    },
    "Kubernetes": {
        "operator": "Run the operator of a Kubernetes cluster.",
        "routeserver": "Serve routing rules to programs.",
    },
    "Other": {
        "doctor": "Check what is installed, reachable and permitted.",
        "bug-report": "Write a file for a bug report, without sensitive values.",
        "version": "Show the versions of client, server, operators and API.",
        "completion": "Print the completion script of a shell.",
        "help": "Show the help of a command.",
    },
}
"""The verbs with their summaries, in the groups of the help."""
_VERBS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
_EXIT_CODES = (
    "Exit codes: 0 done, 1 failed, 2 the command line or a file is wrong, "
    "3 not found, 4 timed out, 5 denied, 6 no server."
)
_COMMON_NAMES = {
    "config": "login URL",
    "create": "apply -f FILE",
    "delete": "sandbox delete",
    "describe": "get sandbox NAME",
    "destroy": "sandbox delete",
    "diff": "plan -f FILE --diff",
    "events": "history NAME",
    "exec": "with -f FILE -- COMMAND",
    "init": "plugin init",
    "kill": "sandbox delete",
    "lint": "plugin lint",
    "list": "get",
    "log": "logs SANDBOX",
    "ls": "get",
    "nodes": "cluster list",
    "output": "env SANDBOX",
    "outputs": "env SANDBOX",
    "ps": "get",
    "publish": "plugin apply -f FILE",
    "restart": "apply -f FILE --recreate",
    "rm": "sandbox delete",
    "rollback": "apply -f FILE --recreate",
    "run": "with -f FILE -- COMMAND",
    "scale": "explain pool.ready",
    "session": "mcp --help",
    "show": "get sandbox NAME",
    "start": "up",
    "stop": "down",
    "tail": "logs -f SANDBOX",
    "test": "plugin test",
    "ui": "page",
    "use": "login URL",
    "validate": "plugin lint FILE",
}
"""Commands for names that other tools use."""
_MODULES = {"with": "with_command", "bug-report": "bug_report"}
"""The modules of verbs whose names cannot be names of modules."""
_MIN_GUESSED_OPTION = 4
"""The shortest option for which a similar one is suggested, in letters."""
_ALIASES = {"sb": "sandbox", "rg": "routegroup", "rp": "plugin", "resourceplugin": "plugin", "resourcepool": "pool"}


class LazyGroup(click.Group):
    """A group whose commands are modules of `commands`, each imported when it is called."""

    def __init__(self, name: str, *, modules: Mapping[str, str], aliases: Mapping[str, str], help: str) -> None:  # noqa: A002 # click's name
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
        if not gc.isenabled():  # see `main`
            gc.freeze()
            gc.enable()
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        wanted = args[0]
        if not ctx.resilient_parsing and not wanted.startswith("-") and self.get_command(ctx, wanted) is None:
            from dayfly.cli.command_classes import similar_command

            meant = self._verb_of_noun(ctx, args) or _COMMON_NAMES.get(wanted)
            meant = meant or similar_command(wanted, [*self.modules, *self.aliases])
            hint = f"; did you mean: {PROGRAM} {meant}" if meant else ""
            ctx.fail(f'no such command "{wanted}"{hint}')
        return super().resolve_command(ctx, args)

    def _verb_of_noun(self, ctx: click.Context, args: list[str]) -> str:
        """Return the command for `VERB NOUN`, like `pool delete` for `delete pool NAME`; empty if there is none."""
        nouns = {**{name: name for name in self.modules}, **self.aliases}
        for noun in args[1:2]:
            name = nouns.get(noun) or nouns.get(noun.removesuffix("s"), "")
            group = self.get_command(ctx, name) if name else None
            if isinstance(group, click.Group) and args[0] in group.commands:
                return f"{name} {args[0]}"
        return ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 # click's signature
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete verbs with their summaries, without an import of their modules."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in self.modules.items() if name.startswith(incomplete)]
        return found or super().shell_complete(ctx, incomplete)


root: click.Group = LazyGroup(
    PROGRAM,
    modules=_VERBS,
    aliases=_ALIASES,
    help="Short-lived resources for sandboxes: created once, wired in, reliably deleted.",
)
root = click.version_option(__version__, message="%(prog)s %(version)s")(root)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Each error becomes one line on stderr."""
    try:
        return _invoke(arguments)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                # The output cannot be written: a pipe without a reader, a full disk. That was reported if possible.
                # Without this, the interpreter flushes again at exit, prints an error and sets exit code 120.
                from dayfly.cli.output.show import discard_output

                discard_output(stream)


def _invoke(arguments: list[str]) -> int:
    """Invoke the verb. Return the exit code of its result, of an interrupt, of a closed pipe or of its error."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # both are text files
    if hasattr(_signal, "SIGCHLD") and _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_IGN:
        # The parent process ignored SIGCHLD. Then the kernel would discard the exit statuses of our children.
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    if instruction := os.environ.get(COMPLETION):
        from click.shell_completion import shell_complete

        import dayfly.cli.completions  # noqa: F401 # registers a class for bash

        return shell_complete(root, {}, PROGRAM, COMPLETION, instruction)
    try:
        # Not `root.main`, which handles interrupts and closed pipes differently.
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
        return 128 + 13  # the reader has closed the pipe
    except click.exceptions.Abort:  # interrupted at a prompt, before any request
        return _print_error("interrupted; nothing was done", 128 + 2)
    except KeyboardInterrupt:
        return _print_error(
            "interrupted; the server continues with the requests it received, see: dayfly status", 128 + 2
        )
    except Exception as fault:  # noqa: BLE001 # users never see a traceback
        return _report_error(fault)


def _report_error(fault: Exception) -> int:
    """Print an error on stderr, and return its exit code.

    The errors are those of a server or host (`DayflyError`), of a file (`SpecError`), of the command line
    (`click.ClickException`) and of the operating system (`OSError`). Any other is an internal error with a crash file.
    """
    match fault:
        case DayflyError():
            return _print_error(str(fault), fault.code)
        case SpecError():
            for line in fault.lines():
                _print_error(line, Exit.USAGE)
            return Exit.USAGE
        case click.NoSuchOption() if message := _explain_option(fault):
            return _print_error(message, Exit.USAGE)
        case click.UsageError():
            path = fault.ctx.command_path if fault.ctx else PROGRAM
            message = _shorten_usage(fault)
            return _print_error(f"{message}; see: {path} --help", Exit.USAGE)
        case click.ClickException():
            return _print_error(fault.format_message(), Exit.USAGE)
        case PermissionError():
            return _print_error(f"{_describe(fault)}; run it as the user who owns this home", Exit.DENIED)
        case OSError(errno=errno.ENOSPC):
            return _print_error(f"{_describe(fault)}; free some space and try again", Exit.FAILED)
        case OSError():
            return _print_error(f"{_describe(fault)}; fix that and try again", Exit.FAILED)
        case _:
            return _print_error(
                f"internal error, {type(fault).__name__}; the details are in {_write_traceback(fault)}", Exit.FAILED
            )


def _shorten_usage(fault: click.UsageError) -> str:
    """Return the message of click in one line, without suggestions that only share a few letters."""
    if isinstance(fault, click.NoSuchOption) and len(fault.option_name.strip("-")) < _MIN_GUESSED_OPTION:
        fault = click.NoSuchOption(fault.option_name, ctx=fault.ctx)
    message = " ".join(fault.format_message().split()).rstrip(".")
    return message.replace("is not a valid integer range", "is not a whole number")


def _explain_option(fault: click.NoSuchOption) -> str:
    """Return what to type if the verb supports no server or no cluster; empty for other options."""
    from dayfly.cli import unsupported_options

    return unsupported_options.message(fault.option_name, fault.ctx)


def _describe(fault: OSError) -> str:
    """Return the file and the reason, without the error number."""
    reason = fault.strerror or str(fault)
    return f"{fault.filename}: {reason}" if fault.filename else reason


def _write_traceback(fault: Exception) -> str:
    """Write the traceback to a file for a bug report. Return its path."""
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


def _print_error(message: str, code: int) -> int:
    from dayfly.cli.output.show import escape_line

    with contextlib.suppress(OSError):
        sys.stdout.flush()  # keeps the order if both streams go to the same file
    with contextlib.suppress(OSError):  # stderr is closed
        sys.stderr.write(f"{PROGRAM}: {escape_line(' '.join(message.split()))}\n")
    return int(code)
