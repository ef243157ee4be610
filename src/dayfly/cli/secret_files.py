"""`--secrets-file`: what is in it, and which of it the plugins ask for. No sentence has a value in it."""

from __future__ import annotations

import difflib
import io
import os
import select
import stat
from typing import TYPE_CHECKING, Any

from dayfly.cli.output.show import talk
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
    from dayfly.client.files import Wished

MOST_BYTES = 256 * 1024
_WRITER_COMES_WITHIN_MS = 1000


def read(path: str) -> dict[str, str]:
    """The values of a dotenv file, by the names in it. Nothing in it is expanded.

    Raises:
        DayflyError: it cannot be read, may be read by others, or is no such file.
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
            # Not by its name: of a value that was cut in pieces one may be taken for a name.
            message = f"{path}:{line}: has the same name as line {lines[binding.key]}"
            raise DayflyError(Exit.USAGE, message, "remove one of the two")
        found[binding.key], lines[binding.key] = binding.value, line
    return found


def _contents(path: str) -> bytes:
    """Return the content of a file, or of a pipe, that belongs to this user and that no other user may read."""
    try:
        # To open a pipe or a device might wait, or have an effect.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or "cannot be read"
        raise DayflyError(Exit.USAGE, f"{path}: {reason.lower()}", "name the file that has the secrets") from None
    try:
        seen = os.fstat(handle)
        is_pipe = stat.S_ISFIFO(seen.st_mode)  # as of `<(...)`, or before `| dayfly with --secrets-file /dev/stdin`
        if not is_pipe and not stat.S_ISREG(seen.st_mode):
            raise DayflyError(Exit.USAGE, f"{path}: is not a regular file", "write the secrets into one")
        if seen.st_uid != os.geteuid():
            message = f"{path}: belongs to another user (uid {seen.st_uid}), who could change or read it"
            raise DayflyError(Exit.DENIED, message, "copy what you need of it into a file of your own")
        if seen.st_mode & 0o077:
            raise DayflyError(Exit.DENIED, f"{path}: others than you may read or change it", f"chmod 600 {path}")
        if seen.st_size > MOST_BYTES:
            raise DayflyError(
                Exit.USAGE, f"{path}: has {seen.st_size} bytes; at most {MOST_BYTES} are read", "shorten it"
            )
        if is_pipe:
            return _from_pipe(handle, path)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(MOST_BYTES)
    finally:
        os.close(handle)


def _from_pipe(handle: int, path: str) -> bytes:
    """Read a pipe that does not block to its end.

    Raises:
        DayflyError: no process has it open for writing, so that its end would never come; or it has too much.
    """
    polled = select.poll()
    polled.register(handle, select.POLLIN)
    has_writer = bool(polled.poll(_WRITER_COMES_WITHIN_MS))
    content = b""
    while len(content) <= MOST_BYTES:
        try:
            part = os.read(handle, MOST_BYTES)
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
    if len(content) > MOST_BYTES:
        raise DayflyError(Exit.USAGE, f"{path}: has more than the {MOST_BYTES} bytes that are read", "shorten it")
    return content


def given(body: Any, path: str | None, client: ServerClient | None = None) -> dict[str, dict[str, str]]:
    """What the file gives to the wish for a sandbox, by resource and name.

    `client` asks for plugins that the wish names; it is not needed where each stands in place.

    Raises:
        DayflyError: secrets are asked for that no file gives, or the file is not fit.
    """
    asked = _wanted(body, client)
    if path is None:
        _refuse_none(asked)
        return {}
    return _chosen(asked, read(path), path)


def of_wishes(found: Sequence[Wished], path: str, client: ServerClient) -> dict[str, dict[str, dict[str, str]]]:
    """What the file gives to each sandbox of some files, by its name; they are not changed, and nothing is sent.

    Raises:
        DayflyError: as `given`, or the server is elsewhere.
    """
    refuse_elsewhere(client.address.url)
    plugins = [wished for wished in found if isinstance(wished.wish, Plugin)]
    boxes = [wished for wished in found if isinstance(wished.wish, Sandbox)]
    values = read(path) if boxes else {}  # once: a second read of a pipe finds nothing
    return {
        box.name: _chosen(_wanted(temporary.sandbox_with_plugins([box, *plugins]), client), values, path)
        for box in boxes
    }


def given_to(plugin: Plugin, path: str | None) -> dict[str, str]:
    """What the file gives to a resource of one plugin alone, by name.

    Raises:
        DayflyError: as `given`.
    """
    name = temporary.resource_name(plugin)
    body = {"spec": {"resources": [{"name": name, "spec": documents.export(plugin)["spec"]}]}}
    return given(body, path).get(name, {})


def _published(client: ServerClient, reference: str) -> PluginSpec:
    """What a plugin that the server has does."""
    name, version = semver.split_reference(reference)
    found = client.get("resource-plugins", name, version=None if version == semver.LATEST else version)
    wish = documents.from_wire({"name": found["name"], "spec": found["spec"]}, "ResourcePlugin")
    assert isinstance(wish, Plugin), "asked for by its kind"
    return wish.spec


def _wanted(body: Any, client: ServerClient | None) -> dict[str, list[str]]:
    """The secrets that the wish for a sandbox asks for, by resource.

    Those that another resource makes are not among them.
    """
    found: dict[str, list[str]] = {}
    for resource in body["spec"].get("resources", ()):
        if "spec" in resource:
            wish = documents.from_wire({"name": "in-place", "spec": resource["spec"]}, "ResourcePlugin")
            assert isinstance(wish, Plugin), "asked for by its kind"
            spec = wish.spec
        else:
            assert client is not None, "what is published has to be asked for"
            spec = _published(client, resource["plugin"])
        if names := sorted(spec.secrets() - resource.get("params", {}).keys()):
            found[resource["name"]] = names
    return found


def _chosen(wanted: Mapping[str, Iterable[str]], found: Mapping[str, str], path: str) -> dict[str, dict[str, str]]:
    """Of what is in a file what is wanted, by resource and name. What nobody asks for is passed over.

    Raises:
        DayflyError: all that is missing, or is not fit to be a secret.
    """
    users: dict[str, list[str]] = {}
    for resource, names in wanted.items():
        for name in names:
            users.setdefault(name, []).append(resource)
    given: dict[str, dict[str, str]] = {}
    takers: dict[str, list[str]] = {}
    missing, unfit = [], []
    for name, resources in users.items():
        for resource in resources:
            written = _written(resource, name, alone=len(resources) == 1)
            key = next((each for each in written if each in found), None)
            if key is None:
                missing.append(f"{written[-1]} (of {resource})")
            elif why := secret_values.invalid_reason(found[key]):
                unfit.append(f"{key} {why}")
            else:
                given.setdefault(resource, {})[name] = found[key]
                takers.setdefault(key, []).append(written[0])
                talk(f"{resource} is given the secret {name} ({key} in {path}).")
    if missing:
        one = missing[0].partition(" ")[0]
        close = difflib.get_close_matches(one, found, 1)
        advice = f"did you mean {close[0]}?" if close else f"write a line {one}=..."
        raise DayflyError(Exit.USAGE, f"{path}: {', '.join(missing)} {_are(missing)} missing", advice)
    if unfit:
        raise DayflyError(Exit.USAGE, f"{path}: {'; '.join(unfit)}", "write another value")
    _refuse_shared(takers, path)
    return given


def _refuse_shared(takers: Mapping[str, list[str]], path: str) -> None:
    """Refuse a name that two secrets have: a-b and A-B are alike in upper case, and nobody can tell which is meant."""
    for key, of in takers.items():
        if len(of) > 1:
            advice = f"write a line for each: {'=..., '.join(of)}=..."
            raise DayflyError(Exit.USAGE, f"{path}: {key} may be {' or '.join(of)}", advice)


def _refuse_none(wanted: Mapping[str, Iterable[str]]) -> None:
    """Refuse a wish for which secrets are to be given, and no file was named."""
    names = [f"{name} (of {resource})" for resource, every in wanted.items() for name in every]
    if names:
        what = "are secrets" if len(names) > 1 else "is a secret"
        raise DayflyError(Exit.USAGE, f"{', '.join(names)} {what}", "name the file that has it: --secrets-file PATH")


def refuse_elsewhere(url: str) -> None:
    """Refuse a server on another machine: no secret goes over a network."""
    secret_values.refuse_elsewhere(url, "--secrets-file")


def _written(resource: str, name: str, *, alone: bool) -> list[str]:
    """How a secret may be called in a file: with its resource, or by its name where no other resource has that."""
    both = [f"{resource}.{name}", _variable(f"{resource}_{name}")]
    return [*both, name, _variable(name)] if alone else both


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"
