"""Credentials from a kubeconfig (certificates, tokens, exec plugins, OIDC) or from inside a pod."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import logging
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from dayfly.kube import credential_plugin
from dayfly.kube.kubeconfig import ContextChoice, Kubeconfig, KubeconfigError

log = logging.getLogger(__name__)

TOKEN_SECONDS = 60.0
"""Seconds for which a token is used before its source is read again; the sources have their own caches."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialsError(Exception):
    """There are no usable credentials; the message has the source and the problem."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Loaded:
    """The result of one load."""

    server: str
    authorization: str | None
    tls: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None


class Credentials:
    """Current credentials for one server; created by `load`."""

    def __init__(self, read: Callable[[], Awaitable[_Loaded]], first: _Loaded) -> None:
        self._read = read
        self._now = first
        self._read_at = asyncio.get_running_loop().time()
        self._reading = asyncio.Lock()

    @property
    def server(self) -> str:
        return self._now.server

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None for plain HTTP."""
        return self._now.tls

    @property
    def server_name(self) -> str | None:
        return self._now.server_name

    @property
    def proxy(self) -> str | None:
        return self._now.proxy

    async def header(self) -> str | None:
        """Return the Authorization header; None if a client certificate is used."""
        if self._now.authorization is not None and self._age() > TOKEN_SECONDS:
            async with self._reading:
                if self._age() > TOKEN_SECONDS:
                    await self._refresh()
        return self._now.authorization

    async def renew(self) -> bool:
        """Read the source again; return whether the credentials have changed."""
        refused = self._now
        async with self._reading:
            if self._now is refused:
                await self._refresh()
        return self._now != refused

    def _age(self) -> float:
        return asyncio.get_running_loop().time() - self._read_at

    async def _refresh(self) -> None:
        """Read the source again. If that fails, keep the credentials, as the server may still accept them."""
        self._read_at = asyncio.get_running_loop().time()
        try:
            loaded = await self._read()
        except CredentialsError as fault:
            log.warning("credentials could not be refreshed: %s", fault)
            return
        same_tls = loaded.tls is not None and self._now.tls is not None and loaded.authorization is not None
        # aiohttp pools connections by TLS context, so the context is kept if the credentials are a token.
        self._now = dataclasses.replace(loaded, tls=self._now.tls) if same_tls else loaded


async def load(
    kubeconfig: Path | None = None, context: str | None = None, *, service_account: Path = SERVICE_ACCOUNT
) -> Credentials:
    """Return credentials from a file; without one from $KUBECONFIG, from inside a pod, or from ~/.kube/config.

    Args:
        kubeconfig: The file.
        context: The context of the file; its current one if None.
        service_account: The folder of a pod's token and CA certificate.

    Raises:
        CredentialsError: none found, or they do not work (a plugin failed, a file is missing).
    """
    chosen = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or None
    if chosen is None and not (service_account / "token").exists():
        chosen = str(Path.home() / ".kube" / "config")

    async def read() -> _Loaded:
        return _in_pod(service_account) if chosen is None else await _from_file(chosen, context)

    return Credentials(read, await read())


def namespace(context: str, kubeconfig: Path | None = None) -> str:
    """Return the namespace that a context of the kubeconfig names; `default` if it names none.

    Raises:
        CredentialsError: there is no such context, or no file; the text names those that are there.
    """
    chosen = str(kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    try:
        return Kubeconfig(chosen).choose(context).namespace
    except KubeconfigError as fault:
        raise CredentialsError(str(fault)) from None


def _in_pod(service_account: Path) -> _Loaded:
    """Load the credentials of a pod (kubernetes.io, "Accessing the Kubernetes API from a Pod")."""
    where = "the pod's service account"
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise CredentialsError(f"{where}: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
    try:
        token = (service_account / "token").read_text(encoding="utf-8").strip()
        context = _context(str(service_account / "ca.crt"))
    except (ValueError, OSError) as fault:
        raise CredentialsError(f"{where}: {fault}") from fault
    if not token:
        raise CredentialsError(f"{where}: {service_account}/token is empty")
    address = f"[{host}]" if ":" in host else host
    return _Loaded(f"https://{address}:{port}", f"Bearer {token}", context, None, None)


async def _from_file(kubeconfig: str, context: str | None) -> _Loaded:
    try:
        chosen = Kubeconfig(kubeconfig).choose(context)
    except KubeconfigError as fault:
        raise CredentialsError(str(fault)) from None
    try:
        authorization, certificate = await _identity(chosen)
        cluster = chosen.cluster
        tls = _tls(chosen, certificate) if cluster.server.startswith("https") else None
    except (KubeconfigError, ValueError, OSError) as fault:
        raise CredentialsError(f"{kubeconfig}: {fault}") from None
    server = cluster.server.rstrip("/")
    return _Loaded(server, authorization, tls, cluster.tls_server_name or None, cluster.proxy_url or None)


async def _identity(chosen: ContextChoice) -> tuple[str | None, tuple[bytes, bytes] | None]:
    """Return the Authorization header and the client certificate with its key, each None if the user has none."""
    user, certificate = chosen.user, chosen.certificate()
    if token := chosen.token():
        return f"Bearer {token}", certificate
    if user.username:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return f"Basic {pair}", certificate
    if user.exec is not None:
        obtained = await credential_plugin.obtain(user.exec, chosen)
        return f"Bearer {obtained.token}" if obtained.token else None, obtained.certificate or certificate
    if user.auth_provider is not None:
        if user.auth_provider.name != "oidc":
            raise KubeconfigError(
                f"Kubernetes no longer supports the auth-provider {user.auth_provider.name!r}: use its exec plugin"
            )
        from dayfly.kube import openid  # noqa: PLC0415 - few kubeconfigs use it

        return f"Bearer {await openid.id_token(user.auth_provider.config or {})}", certificate
    return None, certificate


def _tls(chosen: ContextChoice, certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext:
    authority = chosen.authority()
    context = _context(authority=authority.decode("ascii") if authority else None)
    if chosen.cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        with _in_memory(certificate[0]) as chain, _in_memory(certificate[1]) as key:
            context.load_cert_chain(chain, key)
    return context


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield the path of a file with the content. If possible, it is in memory, so that no key is left on a disk."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("kubeconfig"), "wb", buffering=0) as file:  # noqa: PTH123 - it has no path
            file.write(content)
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pem"
        path.touch(mode=0o600)
        path.write_bytes(content)
        yield str(path)


def _context(file: str | None = None, authority: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=file, cadata=authority)
    # The certificate authorities of many clusters lack extensions that RFC 5280 and Python 3.13 require.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context
