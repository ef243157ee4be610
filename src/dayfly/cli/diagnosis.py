"""Checks of this machine, of a server or of a cluster, for `doctor` and `bug-report`."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly import __version__
from dayfly.cli import installed
from dayfly.cli.backends import target_server
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

OK, WARNING, FAILED = "ok", "warning", "failed"


class Finding(NamedTuple):
    """The result of one check: its state (`ok`, `warning` or `failed`), what was found, and what to do."""

    check: str
    state: str
    found: str
    advice: str = ""


def local_findings() -> Iterator[Finding]:
    """Check this program, its home and the parts that the embedded host needs."""
    yield Finding("dayfly", OK, f"{__version__}, Python {sys.version.split()[0]}")
    yield _home()
    yield _runner()
    for program, use in (("podman", "dayfly up --engine podman"), ("docker", "dayfly up --engine docker")):
        yield _program(program, use)
    yield _program("envoy", "dayfly up --routing")
    yield _extra("operator", "aiohttp", "--context")


def server_findings() -> Iterator[Finding]:
    """Check the server that the command line selects, and the key for it.

    Raises:
        DayflyError: there was no `dayfly login` with the name of `--server`.
    """
    address = target_server.find()
    if address is None:
        yield Finding("server", WARNING, "no server runs in this home", "start one with: dayfly up --detach")
        return
    try:
        client = target_server.ServerClient(address)
        version = client.health()["version"]
    except DayflyError as fault:
        yield Finding("server", FAILED, fault.message, fault.advice)
        return
    differs = version != __version__
    advice = "use the same version of the command line and the server" if differs else ""
    yield Finding("server", WARNING if differs else OK, f"{address.url}, version {version}", advice)
    try:
        count = len(client.get("sandboxes"))
        yield Finding("key", OK, f"organisation {address.org}, {count} sandboxes")
        concerns: list[Any] = client.get("attention")
    except DayflyError as fault:
        yield Finding("key", FAILED, fault.message, fault.advice)
        return
    found = f"{len(concerns)} need attention" if concerns else "nothing needs attention"
    yield Finding("sandboxes", WARNING if concerns else OK, found, "see: dayfly status" if concerns else "")


def cluster_findings(context: str, namespace: str | None) -> Iterator[Finding]:
    """Check a cluster: whether it is reachable, has Dayfly's kinds, and lets the user read sandboxes.

    Raises:
        DayflyError: the context does not exist.
    """
    from dayfly.cli.backends import hosts

    name = f"cluster {context}"
    try:
        count = len(hosts.cluster(context, namespace).sandboxes())
    except DayflyError as fault:
        if fault.code == Exit.USAGE:
            raise
        yield Finding(name, FAILED, fault.message, fault.advice)
        return
    yield Finding(name, OK, f"reachable; you may read sandboxes, and there are {count}")


def _home() -> Finding:
    home = Home.find()
    try:
        home.check()
    except DayflyError as fault:
        return Finding("home", FAILED, fault.message, fault.advice)
    if not home.path.exists():
        return Finding("home", OK, f"{home.path} (created by dayfly up)")
    if not os.access(home.path, os.W_OK):
        return Finding("home", FAILED, f"{home.path} is not writable", "run dayfly as the user who owns it")
    free = shutil.disk_usage(home.path).free // 2**20
    low = free < _MIN_FREE_MIB
    return Finding("home", WARNING if low else OK, f"{home.path}, {free} MiB free", "free some space" if low else "")


_MIN_FREE_MIB = 500


def _runner() -> Finding:
    named = os.environ.get("DAYFLY_RUNNER")
    if named:
        works = os.access(named, os.X_OK)
        return Finding("runner", OK if works else FAILED, named, "" if works else "correct DAYFLY_RUNNER")
    root = installed.checkout()
    if root is not None:
        has_compiler = any(map(shutil.which, ("cc", "gcc", "clang")))
        built = (root / ".cache" / "runner" / "dayfly-runner").exists()
        if built or has_compiler:
            return Finding("runner", OK, "built in the checkout" if built else "dayfly up builds it")
        return Finding("runner", FAILED, "not built, and there is no C compiler", "install a C compiler")
    if packaged := installed.packaged_runner():
        return Finding("runner", OK, str(packaged))
    advice = "build it with runner/build.sh in a checkout and set DAYFLY_RUNNER to its path"
    return Finding("runner", FAILED, "the package has none for this machine", advice)


def _program(name: str, use: str) -> Finding:
    """Return whether an optional program is installed."""
    path = shutil.which(name)
    return Finding(name, OK, path or f"not installed; only needed for {use}")


def _extra(extra: str, module: str, use: str) -> Finding:
    """Return whether an optional part of Dayfly is installed."""
    import importlib.util

    if importlib.util.find_spec(module) is not None:
        return Finding(f"extra {extra}", OK, "installed")
    advice = installed.install_advice(extra)
    return Finding(f"extra {extra}", OK, f"not installed; only needed for {use}", advice)
