"""`--secrets-file`: read it and choose the secrets that the plugins need. Messages never contain a value."""

from __future__ import annotations

import difflib
import io
import os
import select
import stat
from typing import TYPE_CHECKING, Any

from dayfly.cli.output.show import print_message
from dayfly.client import secret_values, temporary
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec import documents
from dayfly.spec.parsing import text
from dayfly.spec.plugin import Plugin, PluginSpec
from dayfly.spec.sandbox import Sandbox
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dayfly.cli.backends.target_server import ServerClient
    from dayfly.client.files import LoadedDocument
    from dayfly.spec.parsing.text import ParsedDocument

MAX_FILE_BYTES = 256 * 1024
_WRITER_TIMEOUT_MS = 1000


def read(path: str) -> dict[str, str]:
    """Return the values of a dotenv file, by name. No variables are expanded.

    Raises:
        DayflyError: the file cannot be read, other users can read it, or it is not a dotenv file.
    """
    from dotenv.parser import parse_stream

    try:
        content = text.decode(_contents(path))
    except text.NotTextError as fault:
        raise DayflyError(Exit.USAGE, f"{path}: is {fault}", "save it as UTF-8") from None
    if "\0" in content:
        raise DayflyError(Exit.USAGE, f"{path}: contains a zero byte", "write it as lines of NAME=VALUE")
    found: dict[str, str] = {}
    lines: dict[str, int] = {}
    for binding in parse_stream(io.StringIO(content, newline="")):
        written = binding.original.string
        line = binding.original.line + len(written[: len(written) - len(written.lstrip())].splitlines())
        if binding.error or (binding.key is not None and binding.value is None):
            raise DayflyError(Exit.USAGE, f"{path}:{line}: is not NAME=VALUE", 'quote a value of several lines with "')
        if binding.key is None or binding.value is None:
            continue
        if binding.key in found:
            # The message omits the name: it may be a piece of a value with unquoted line breaks.
            message = f"{path}:{line}: has the same name as line {lines[binding.key]}"
            raise DayflyError(Exit.USAGE, message, "remove one of the two")
        found[binding.key], lines[binding.key] = binding.value, line
    return found


def _contents(path: str) -> bytes:
    """Return the content of a file, or of a pipe, that belongs to this user and that no other user may read."""
    try:
        # To open a pipe or a device could block, or have a side effect.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or "cannot be read"
        raise DayflyError(Exit.USAGE, f"{path}: {reason.lower()}", "name the file that has the secrets") from None
    try:
        status = os.fstat(handle)
        is_pipe = stat.S_ISFIFO(status.st_mode)  # as of `<(...)`, or before `| dayfly with --secrets-file /dev/stdin`
        if not is_pipe and not stat.S_ISREG(status.st_mode):
            raise DayflyError(Exit.USAGE, f"{path}: is not a regular file", "write the secrets into one")
        if status.st_uid != os.geteuid():
            message = f"{path}: belongs to another user (uid {status.st_uid}), who could read or change it"
            raise DayflyError(Exit.DENIED, message, "copy what you need into your own file")
        if status.st_mode & 0o077:
            raise DayflyError(Exit.DENIED, f"{path}: other users can read or change it", f"chmod 600 {path}")
        if status.st_size > MAX_FILE_BYTES:
            raise DayflyError(
                Exit.USAGE, f"{path}: has {status.st_size} bytes; the limit is {MAX_FILE_BYTES}", "shorten it"
            )
        if is_pipe:
            return _from_pipe(handle, path)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES)
    finally:
        os.close(handle)


def _from_pipe(handle: int, path: str) -> bytes:
    """Read a non-blocking pipe to its end.

    Raises:
        DayflyError: no process has the pipe open for writing, or the content is too large.
    """
    polled = select.poll()
    polled.register(handle, select.POLLIN)
    has_writer = bool(polled.poll(_WRITER_TIMEOUT_MS))
    content = b""
    while len(content) <= MAX_FILE_BYTES:
        try:
            part = os.read(handle, MAX_FILE_BYTES)
        except BlockingIOError:
            has_writer = True
            polled.poll()
            continue
        if not part:
            break
        content += part
    if not has_writer:
        message = f"{path}: is not a regular file, and no process writes to this pipe"
        raise DayflyError(Exit.USAGE, message, "write the secrets into a file")
    if len(content) > MAX_FILE_BYTES:
        raise DayflyError(Exit.USAGE, f"{path}: has more than {MAX_FILE_BYTES} bytes, which is the limit", "shorten it")
    return content


def choose_for_sandbox(
    body: Any, path: str | None, client: ServerClient | None = None, source: ParsedDocument | None = None
) -> dict[str, dict[str, str]]:
    """Return the secrets from the file that a sandbox needs, by resource and name.

    `client` fetches published plugins; it is not needed if all plugins are inline. `source` is the sandbox's file, for
    messages.

    Raises:
        DayflyError: a plugin needs a secret that is missing, or the file is invalid.
    """
    required = _required_secrets(body, client, source)
    if path is None:
        _reject_missing_file(required)
        return {}
    return _choose(required, read(path), path)


def choose_for_files(
    found: Sequence[LoadedDocument], path: str, client: ServerClient
) -> dict[str, dict[str, dict[str, str]]]:
    """Return the secrets from the file for each sandbox in `found`, by the name of the sandbox. Nothing is sent.

    Raises:
        DayflyError: as `choose_for_sandbox`, or the server is on another machine.
    """
    reject_remote_server(client.address.url)
    plugins = [wished for wished in found if isinstance(wished.content, Plugin)]
    boxes = [wished for wished in found if isinstance(wished.content, Sandbox)]
    values = read(path) if boxes else {}  # once: a pipe can be read only once
    return {
        box.name: _choose(
            _required_secrets(temporary.sandbox_with_plugins([box, *plugins]), client, box.document), values, path
        )
        for box in boxes
    }


def choose_for_plugin(plugin: Plugin, path: str | None) -> dict[str, str]:
    """Return the secrets from the file for a single resource of a plugin, by name.

    Raises:
        DayflyError: as `choose_for_sandbox`.
    """
    name = temporary.resource_name(plugin)
    body = {"spec": {"resources": [{"name": name, "spec": documents.export(plugin)["spec"]}]}}
    return choose_for_sandbox(body, path).get(name, {})


def _fetch_plugin(client: ServerClient, reference: str) -> PluginSpec:
    """Return the spec of a published plugin."""
    name, version = semver.split_reference(reference)
    found = client.get("resource-plugins", name, version=None if version == semver.LATEST else version)
    plugin = documents.from_wire({"name": found["name"], "spec": found["spec"]}, "ResourcePlugin")
    assert isinstance(plugin, Plugin), "the kind is an argument"
    return plugin.spec


def _fetch_plugin_of(client: ServerClient, resource: Any, number: int, source: ParsedDocument | None) -> PluginSpec:
    """Return the spec of the plugin that the `number`th resource names, from 0.

    Raises:
        DayflyError: it is not published.
    """
    try:
        return _fetch_plugin(client, resource["plugin"])
    except DayflyError as fault:
        if fault.code != Exit.NOT_FOUND:
            raise
        advice = f"add the plugin's file with -f, or see: dayfly plugin list -A{client.flags}"
        place = f'resource "{resource["name"]}": {fault.message}'
        if source is not None:
            place = str(source.error(fault.message, ("spec", "resources", number, "plugin")))
        raise DayflyError(Exit.NOT_FOUND, place, advice) from None


def _required_secrets(
    body: Any, client: ServerClient | None, source: ParsedDocument | None = None
) -> dict[str, list[str]]:
    """Return the names of the secrets that a sandbox needs, by resource.

    Secrets that come from another resource of the sandbox are not included.
    """
    found: dict[str, list[str]] = {}
    for number, resource in enumerate(body["spec"].get("resources", ())):
        if "spec" in resource:
            plugin = documents.from_wire({"name": "in-place", "spec": resource["spec"]}, "ResourcePlugin")
            assert isinstance(plugin, Plugin), "the kind is an argument"
            spec = plugin.spec
        else:
            assert client is not None, "published plugins need a client"
            spec = _fetch_plugin_of(client, resource, number, source)
        if names := sorted(spec.secrets() - resource.get("params", {}).keys()):
            found[resource["name"]] = names
    return found


def _choose(required: Mapping[str, Iterable[str]], found: Mapping[str, str], path: str) -> dict[str, dict[str, str]]:
    """Return the required secrets of a file, by resource and name. Other lines are ignored.

    Raises:
        DayflyError: secrets are missing or invalid; the message names all of them.
    """
    users: dict[str, list[str]] = {}
    for resource, names in required.items():
        for name in names:
            users.setdefault(name, []).append(resource)
    given: dict[str, dict[str, str]] = {}
    takers: dict[str, list[str]] = {}
    missing, unfit = [], []
    for name, resources in users.items():
        for resource in resources:
            keys = _keys(resource, name, is_only_user=len(resources) == 1)
            key = next((each for each in keys if each in found), None)
            if key is None:
                missing.append(f"{keys[-1]} (of {resource})")
            elif why := secret_values.invalid_reason(found[key]):
                unfit.append(f"{key} {why}")
            else:
                given.setdefault(resource, {})[name] = found[key]
                takers.setdefault(key, []).append(keys[0])
                print_message(f"{resource} gets the secret {name} ({key} in {path}).")
    if missing:
        one = missing[0].partition(" ")[0]
        close = difflib.get_close_matches(one, found, 1)
        advice = f"did you mean {close[0]}?" if close else f"write a line {one}=..."
        raise DayflyError(Exit.USAGE, f"{path}: {', '.join(missing)} {_is_or_are(missing)} missing", advice)
    if unfit:
        raise DayflyError(Exit.USAGE, f"{path}: {'; '.join(unfit)}", "write another value")
    _reject_ambiguous(takers, path)
    return given


def _reject_ambiguous(takers: Mapping[str, list[str]], path: str) -> None:
    """Reject a line that could mean two secrets: a-b and A-B are equal in upper case."""
    for key, secrets in takers.items():
        if len(secrets) > 1:
            advice = f"write a separate line for each: {'=..., '.join(secrets)}=..."
            raise DayflyError(Exit.USAGE, f"{path}: {key} may be {' or '.join(secrets)}", advice)


def _reject_missing_file(required: Mapping[str, Iterable[str]]) -> None:
    """Reject a sandbox that needs secrets if there is no `--secrets-file`."""
    names = [f"{name} (of {resource})" for resource, every in required.items() for name in every]
    if names:
        what = "are secrets" if len(names) > 1 else "is a secret"
        raise DayflyError(
            Exit.USAGE, f"{', '.join(names)} {what}", "name a file with their values: --secrets-file PATH"
        )


def reject_remote_server(url: str) -> None:
    """Reject a server on another machine: secrets are never sent over a network."""
    secret_values.refuse_remote_server(url, "--secrets-file")


def _keys(resource: str, name: str, *, is_only_user: bool) -> list[str]:
    """Return the keys of a secret in a file, with the resource, or without if no other resource has that name."""
    both = [f"{resource}.{name}", _variable(f"{resource}_{name}")]
    return [*both, name, _variable(name)] if is_only_user else both


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _is_or_are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"
