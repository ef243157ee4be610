"""Options that verbs share, and the click group for the verbs of a noun, such as `dayfly sandbox`.

Each verb imports this module, so it has few imports itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.scalars import numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from dayfly.spec.routing.routing_keys import Forms

    Decorator = Callable[[Any], Any]

WIDE, NO_HEADERS = "dayfly.wide", "dayfly.no-headers"
"""Keys in click's `Context.meta`: whether `-o wide` and `--no-headers` are given."""
_NO_WAIT = "dayfly.no-wait"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Duration(click.ParamType[float]):
    """`90s`, `3m`, `1h` or `2d`, and unless a unit is required a plain number of seconds."""

    name = "duration"

    def __init__(self, *, needs_unit: bool = False) -> None:
        self._needs_unit = needs_unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        number, unit = (value[:-1], value[-1:]) if value[-1:] in _UNITS else (value, "s")
        if self._needs_unit and number == value:
            self.fail(f"{value!r} has no unit: write s, m, h or d after the number, like 2h", param, ctx)
        if (count := numbers.parse_whole(number, 9_999_999)) is None:
            self.fail(f"{value!r} is not a duration: write a whole number and s, m, h or d, like 90s", param, ctx)
        return float(count * _UNITS[unit])


def _complete_with(name: str) -> Callable[..., Any]:
    """Return a completion function of `completions`, which is imported only when it is called."""

    def offer(*given: Any) -> Any:
        from dayfly.cli import completions

        return getattr(completions, name)(*given)

    return offer


def _strip_kind(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    from dayfly.client import subject

    return tuple(map(subject.normalize, value)) if isinstance(value, tuple) else subject.normalize(value)


def name_argument(name: str, completion: str, **more: Any) -> Decorator:
    """Return an argument that the function `completion` of `completions` completes.

    With `subjects`, the argument may also be `sandbox/NAME`, and the verb gets NAME.
    """
    if completion == "subjects":
        more["callback"] = _strip_kind
    return click.argument(name, shell_complete=_complete_with(completion), **more)


def timeout(default: str) -> Decorator:
    """Return `--timeout`. It limits how long the command waits, not how long the run takes."""
    return click.option(
        "--timeout", type=Duration(), default=default, show_default=True, help="The longest time to wait."
    )


def wait(command: Any) -> Any:
    """Add `--wait`, and `--no-wait` for `--wait=false`."""
    waits = click.option(
        "--wait",
        is_flag=False,
        flag_value="true",
        type=click.BOOL,
        default=True,
        show_default=True,
        metavar="BOOLEAN",
        callback=lambda ctx, _param, value: value and not ctx.meta.get(_NO_WAIT),
        help="Wait until it is done; --wait=false or --no-wait returns at once.",
    )
    returns = click.option(
        "--no-wait",
        is_flag=True,
        is_eager=True,
        hidden=True,
        expose_value=False,
        callback=_store_in_meta(_NO_WAIT),
    )
    return waits(returns(command))


recreate: Decorator = click.option(
    "--recreate",
    is_flag=True,
    help="If a sandbox has failed, or cannot change as its file requires, delete it with its resources and create it "
    "again.",
)
param_files: Decorator = click.option(
    "--param-file",
    "param_files",
    multiple=True,
    metavar="NAME=PATH",
    help="A param whose value is the text of a file. Repeatable.",
)
secrets_file: Decorator = click.option(
    "--secrets-file",
    metavar="PATH",
    shell_complete=_complete_with("file_paths"),
    help="A file with secrets of the plugins, as lines of NAME=VALUE. Only you may have access to it.",
)


class OutputFormat(click.ParamType[str]):
    """`json`, `yaml`, `name`, `wide`, or `jsonpath=` and a query such as `$.status.ready`."""

    name = "format"
    words = ("json", "yaml", "name", "wide")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.words:
            return str(value)
        head, _, query = value.partition("=")
        if head != "jsonpath":
            self.fail(f"{value!r} is not one of {', '.join(self.words)} and jsonpath=QUERY", param, ctx)
        from dayfly.spec.errors import SpecError
        from dayfly.spec.scalars import jsonpath

        query = query.removeprefix("{").removesuffix("}")  # as kubectl writes it
        query = f"${query}" if query.startswith((".", "[")) else query
        try:
            jsonpath.check(query, regex=False)
        except SpecError as fault:
            self.fail(fault.problem, param, ctx)
        return f"jsonpath={query}"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:  # noqa: ARG002 # click's signature
        from click.shell_completion import CompletionItem

        return [CompletionItem(each) for each in (*self.words, "jsonpath=") if each.startswith(incomplete)]


def _note_wide(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Return the format, or None for text. `wide` is text with more columns."""
    ctx.meta[WIDE] = value == "wide"
    return None if value == "wide" else value


def _store_in_meta(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return a callback that stores the value of an option in click's `Context.meta`."""

    def store(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        if value is not None:
            ctx.meta[key] = value

    return store


output: Decorator = click.option(
    "-o",
    "--output",
    type=OutputFormat(),
    callback=_note_wide,
    metavar="FORMAT",
    help="Print json, yaml, only the name, text with more columns (wide), or the values of jsonpath=QUERY.",
)
_no_headers: Decorator = click.option(
    "--no-headers",
    is_flag=True,
    expose_value=False,
    callback=_store_in_meta(NO_HEADERS),
    help="Print tables without their header.",
)


def list_output(command: Any) -> Any:
    """Add `-o` and `--no-headers`."""
    return output(_no_headers(command))


variables_option: Decorator = click.option(
    "--set", "sets", multiple=True, metavar="NAME=VALUE", help="The value of @{NAME} in the files. Repeatable."
)


labels: Decorator = click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="SELECTOR",
    help="Select by label: a=b, a!=b, a or !a. Repeatable.",
)


server: Decorator = click.option(
    "--server",
    metavar="NAME",
    expose_value=False,
    callback=_store_in_meta("dayfly.server"),
    shell_complete=_complete_with("servers"),
    help="Use this server, which `dayfly login` has stored.",
)


def file_option(*names: str, help: str) -> Decorator:  # noqa: A002 # click's name
    """Return a repeatable option that takes files."""
    return click.option(*names, multiple=True, metavar="FILE", shell_complete=_complete_with("file_paths"), help=help)


def cluster_options(command: Any) -> Any:
    """Add `--context` and `-n`, which select a Kubernetes cluster."""
    where = click.option(
        "--context",
        metavar="NAME",
        shell_complete=_complete_with("contexts"),
        help="Use the cluster of this kubeconfig context.",
    )
    namespace = click.option(
        "-n", "--namespace", metavar="NAME", help="The namespace in that cluster; by default the context's."
    )
    return where(namespace(command))


def backend_options(command: Any) -> Any:
    """Add `--server`, `--context` and `-n`, which select another server or a Kubernetes cluster."""
    return server(cluster_options(command))


def files(*, required: bool = True) -> Decorator:
    """Return `-f`, the files with specs."""
    return click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        required=required,
        shell_complete=_complete_with("file_paths"),
        metavar="FILE|DIR|-",
        help="A file, a folder (its .yaml, .yml and .json files) or - for standard input. Repeatable.",
    )


allow_webhook: Decorator = click.option(
    "--allow-webhook",
    "webhooks",
    multiple=True,
    metavar="HOST:PORT",
    envvar="DAYFLY_ALLOW_WEBHOOK",
    help="Allow webhooks to this server, even if its address is private or it has no TLS. Repeatable. Default: "
    "$DAYFLY_ALLOW_WEBHOOK, separated by spaces.",
)


def events_to(*, of: str, envvar: str | None = None) -> Decorator:
    """Return `--events-to`. The help text uses `of` to describe the sandboxes whose events are sent."""
    text = f"Post CloudEvents of {of} to this URL: ready, failed, stuck, about to expire."
    text += f" Default: ${envvar}." if envvar else ""
    return click.option("--events-to", metavar="URL", envvar=envvar, help=text)


def parse_webhook_servers(given: tuple[str, ...]) -> frozenset[str]:
    """Return the servers of `--allow-webhook`, in lower case.

    Raises:
        DayflyError: a value is not `HOST:PORT`.
    """
    for each in given:
        host, colon, port = each.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not (colon and host and numbers.parse_port(port)) or (not bracketed and set(host) & set(":/@[]*? ")):
            raise DayflyError(Exit.USAGE, f"{each!r} is not a server", "write --allow-webhook HOST:PORT")
    return frozenset(each.lower() for each in given)


def parse_routing_forms(headers: tuple[str, ...], query: str) -> Forms:
    """Return the additional headers and query parameter in which requests may carry a routing key.

    `headers` are the values of `--routing-header`, and `query` is the value of `--routing-query`.

    Raises:
        DayflyError: a name is invalid.
    """
    from dayfly.spec.errors import SpecError
    from dayfly.spec.routing.routing_keys import check_forms

    try:
        return check_forms(headers, query)
    except SpecError as fault:
        raise DayflyError(Exit.USAGE, str(fault), "see --routing-header and --routing-query") from None
