"""Credentials from all sources of kubeconfigs and pods."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from dayfly.kube import auth, errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES, PODS
from dayfly.kube.transport import HttpTransport


def write(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    """Write a kubeconfig with one user."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster or {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def certified(folder: Path) -> Iterator[str]:
    """Return a key and its certificate, as in a kubeconfig."""
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=me"
    files = [folder / "key", folder / "certificate"]
    subprocess.run(["openssl", *made.split(), "-keyout", files[0], "-out", files[1]], check=True, capture_output=True)
    return (base64.b64encode(file.read_bytes()).decode() for file in files)


def descriptors() -> int:
    """Return the number of open descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


def cluster_of(kubeconfig: Path) -> dict[str, Any]:
    return yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]


def plugin(tmp_path: Path, version: str = "v1", *, fails: bool = False) -> dict[str, Any]:
    """An exec plugin with a counter in its tokens."""
    script = tmp_path / "plugin.py"
    script.write_text(
        f"""
import json, pathlib, sys
if {fails}: sys.exit("no network")
count = pathlib.Path({str(tmp_path / "count")!r})
calls = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(calls))
api = "client.authentication.k8s.io/{version}"
print(json.dumps({{"apiVersion": api, "kind": "ExecCredential", "status": {{"token": f"token-{{calls}}"}}}}))
"""
    )
    api = f"client.authentication.k8s.io/{version}"
    return {"exec": {"apiVersion": api, "command": sys.executable, "args": [str(script)]}}


class TestLoad:
    async def test_token(self, tmp_path: Path):
        found = await auth.load(write(tmp_path / "config", {"token": "secret"}))
        assert await found.header() == "Bearer secret"
        assert found.server == "http://127.0.0.1:1"
        assert found.tls is None

    async def test_keys_in_the_file_are_written_nowhere(self, tmp_path: Path, monkeypatch):
        """A killed process would leave them."""
        key, certificate = certified(tmp_path)
        cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": certificate}
        user = {"client-certificate-data": certificate, "client-key-data": key}
        config = write(tmp_path / "config", user, cluster)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        found = await auth.load(config)
        held = descriptors()
        again = await auth.load(config)
        assert descriptors() == held, "each is held once"
        for each in (found, again):
            assert each.tls is not None
            assert each.tls.get_ca_certs()

    async def test_password(self, tmp_path: Path):
        found = await auth.load(write(tmp_path / "config", {"username": "a", "password": "b"}))
        assert await found.header() == "Basic " + base64.b64encode(b"a:b").decode()

    @pytest.mark.parametrize("version", ["v1", "v1beta1"])
    async def test_plugin(self, tmp_path: Path, version: str):
        """The token of an exec plugin is cached, and renewed when it is refused."""
        found = await auth.load(write(tmp_path / "config", plugin(tmp_path, version)))
        assert await found.header() == "Bearer token-1"
        assert await found.header() == "Bearer token-1"
        assert await found.renew()
        assert await found.header() == "Bearer token-2"

    async def test_a_token_file_is_read_again_when_it_is_old(self, tmp_path: Path, monkeypatch):
        """Tokens rotate: the file is read again after a minute, once for all concurrent callers."""
        (tmp_path / "token").write_text("one")
        found = await auth.load(write(tmp_path / "config", {"tokenFile": str(tmp_path / "token")}))
        (tmp_path / "token").write_text("two")
        assert await found.header() == "Bearer one"
        monkeypatch.setattr(auth, "TOKEN_SECONDS", 0.0)
        assert set(await asyncio.gather(*(found.header() for _ in range(5)))) == {"Bearer two"}

    async def test_a_source_that_fails_later_costs_nothing_yet(self, tmp_path: Path):
        """The loaded token stays in use, and `renew` returns false."""
        config = write(tmp_path / "config", plugin(tmp_path))
        found = await auth.load(config)
        plugin(tmp_path, fails=True)
        assert not await found.renew()
        assert await found.header() == "Bearer token-1"

    async def test_renewing_in_vain_says_so(self, tmp_path: Path):
        """The same token again is no other credential."""
        found = await auth.load(write(tmp_path / "config", {"token": "secret"}))
        assert not await found.renew()

    async def test_oidc(self, tmp_path: Path):
        """A valid ID token is used."""
        claims = base64.b64encode(json.dumps({"exp": 4102444800}).encode()).decode().rstrip("=")
        user = {"auth-provider": {"name": "oidc", "config": {"id-token": f"a.{claims}.c"}}}
        found = await auth.load(write(tmp_path / "config", user))
        assert await found.header() == f"Bearer a.{claims}.c"

    async def test_service_account_of_the_pod_is_used(self, tmp_path: Path, monkeypatch):
        """Without a kubeconfig, the service account of the pod is used."""
        (tmp_path / "token").write_text("mine")
        list(certified(tmp_path))
        shutil.copy(tmp_path / "certificate", tmp_path / "ca.crt")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        monkeypatch.delenv("KUBECONFIG", raising=False)
        found = await auth.load(service_account=tmp_path)
        assert found.server == "https://[fd00::1]:443"
        assert (await found.header()).lower() == "bearer mine"
        assert found.tls is not None

    async def test_unusable_kubeconfig_is_reported_with_its_fault(self, tmp_path: Path):
        """A missing file, a failing plugin, an unknown context, a file that is not a kubeconfig."""
        with pytest.raises(auth.CredentialsError, match="no such file"):
            await auth.load(tmp_path / "nowhere")
        with pytest.raises(auth.CredentialsError, match="plugin"):
            await auth.load(write(tmp_path / "config", plugin(tmp_path, fails=True)))
        with pytest.raises(auth.CredentialsError, match="elsewhere"):
            await auth.load(write(tmp_path / "config", {"token": "t"}), context="elsewhere")
        (tmp_path / "broken").write_text("{}")
        with pytest.raises(auth.CredentialsError):
            await auth.load(tmp_path / "broken")

    @pytest.mark.parametrize("said", ["", "hello", "- a", "a: [b", "\0", "users: x"])
    async def test_invalid_kubeconfig_is_reported_by_path(self, tmp_path: Path, said: str):
        (tmp_path / "config").write_text(said)
        with pytest.raises(auth.CredentialsError, match="config: "):
            await auth.load(tmp_path / "config")

    async def test_a_user_that_is_a_mere_word_gives_no_credentials(self, tmp_path: Path):
        with pytest.raises(auth.CredentialsError, match="this is no kubeconfig"):
            await auth.load(write(tmp_path / "config", cast("Any", "me")))

    async def test_a_file_that_is_just_being_written_costs_nothing(self, tmp_path: Path, monkeypatch):
        """`kubectl config` empties the file before it writes it."""
        config = write(tmp_path / "config", {"token": "one"})
        found = await auth.load(config)
        monkeypatch.setattr(auth, "TOKEN_SECONDS", 0.0)
        config.write_text("")
        assert await found.header() == "Bearer one"
        write(config, {"token": "two"})
        assert await found.header() == "Bearer two"

    async def test_fields_without_a_value_count_as_absent(self, tmp_path: Path):
        """Programs such as kubectl write `args: null`."""
        user = plugin(tmp_path)
        user["exec"] |= {"env": None, "provideClusterInfo": None}
        user |= {"token": None, "username": None}
        found = await auth.load(write(tmp_path / "config", user))
        assert await found.header() == "Bearer token-1"

    async def test_relative_paths_count_from_their_own_file(self, tmp_path: Path, monkeypatch):
        (folder := tmp_path / "a").mkdir()
        (folder / "token").write_text("here\n")
        config = write(folder / "config", {"tokenFile": "token"})
        monkeypatch.chdir(tmp_path)
        assert await (await auth.load(config)).header() == "Bearer here"
        assert await (await auth.load(Path("a/config"))).header() == "Bearer here"

    async def test_first_of_several_files_decides(self, tmp_path: Path, monkeypatch):
        first, second = tmp_path / "1", tmp_path / "2"
        write(first, {"token": "first"}, {"server": "http://first"})
        write(second, {"token": "second"}, {"server": "http://second"})
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{first}:{second}")
        found = await auth.load()
        assert (found.server, await found.header()) == ("http://first", "Bearer first")

    async def test_context_without_its_user_is_anonymous(self, tmp_path: Path):
        config = write(tmp_path / "config", {})
        config.write_text(config.read_text().replace("user: u", "user: nobody"))
        assert await (await auth.load(config)).header() is None

    async def test_cluster_settings_reach_the_connection(self, tmp_path: Path):
        cluster = {
            "server": "https://127.0.0.1:6443/",
            "tls-server-name": "api.internal",
            "proxy-url": "http://proxy:3128",
            "insecure-skip-tls-verify": True,
        }
        found = await auth.load(write(tmp_path / "config", {}, cluster))
        assert (found.server, found.server_name) == ("https://127.0.0.1:6443", "api.internal")
        assert found.proxy == "http://proxy:3128"
        assert found.tls is not None
        assert found.tls.verify_mode == ssl.CERT_NONE

    async def test_plugin_gets_the_cluster_it_is_for(self, tmp_path: Path):
        told = tmp_path / "info"
        user = plugin(tmp_path)
        keep = f'printf %s "$KUBERNETES_EXEC_INFO" >{told}; echo "$EXTRA" >>{tmp_path}/extra; exec "$@"'
        user["exec"] |= {
            "command": "sh",
            "args": ["-c", keep, "sh", sys.executable, *user["exec"]["args"]],
            "env": [{"name": "EXTRA", "value": "1"}],
            "provideClusterInfo": True,
            "interactiveMode": "Never",
        }
        await auth.load(write(tmp_path / "config", user, {"server": "http://x", "proxy-url": "http://p"}))
        info = json.loads(told.read_text())
        cluster = {"server": "http://x", "insecure-skip-tls-verify": False, "proxy-url": "http://p"}
        assert info["kind"] == "ExecCredential"
        assert info["spec"] == {"interactive": False, "cluster": cluster}
        assert (tmp_path / "extra").read_text() == "1\n"

    async def test_plugin_can_give_a_certificate(self, tmp_path: Path):
        list(certified(tmp_path))
        script = tmp_path / "give.py"
        script.write_text(
            "import json\n"
            f"key, certificate = (open({str(tmp_path)!r} + each).read() for each in ('/key', '/certificate'))\n"
            "status = {'clientCertificateData': certificate, 'clientKeyData': key}\n"
            "api = 'client.authentication.k8s.io/v1'\n"
            "print(json.dumps({'apiVersion': api, 'kind': 'ExecCredential', 'status': status}))\n"
        )
        user = plugin(tmp_path)
        user["exec"]["args"] = [str(script)]
        found = await auth.load(write(tmp_path / "config", user, {"server": "https://127.0.0.1:1"}))
        assert await found.header() is None
        assert found.tls is not None

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"command": "/no/such", "installHint": "install it"}, "cannot be run: No such file.*install it"),
            ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1 is not supported"),
            ({"command": "true", "args": []}, "printed no ExecCredential"),
            ({"command": "sh", "args": ["-c", "echo denied >&2; exit 3"]}, "exit code 3: denied"),
            ({"interactiveMode": "Always"}, "needs a terminal"),
        ],
    )
    async def test_failing_plugin_is_named_with_the_cause(self, tmp_path: Path, monkeypatch, changed, said):
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        user = plugin(tmp_path)
        user["exec"] |= changed
        with pytest.raises(auth.CredentialsError, match=said):
            await auth.load(write(tmp_path / "config", user))

    async def test_removed_auth_provider_is_named(self, tmp_path: Path):
        user = {"auth-provider": {"name": "gcp", "config": {}}}
        with pytest.raises(auth.CredentialsError, match="no longer supports the auth-provider 'gcp'"):
            await auth.load(write(tmp_path / "config", user))

    async def test_expired_id_token_is_refreshed(self, tmp_path: Path):
        async def discovery(request: web.Request) -> web.Response:
            return web.json_response({"token_endpoint": str(request.url.with_path("/token"))})

        async def token(request: web.Request) -> web.Response:
            form = await request.post()
            assert (form["grant_type"], form["refresh_token"]) == ("refresh_token", "r1")
            assert request.headers["Authorization"] == aiohttp.encode_basic_auth("me", "pw")
            return web.json_response({"id_token": "new", "refresh_token": "r2"})

        app = web.Application()
        app.add_routes([web.get("/.well-known/openid-configuration", discovery), web.post("/token", token)])
        claims = base64.urlsafe_b64encode(json.dumps({"exp": 1}).encode()).decode().rstrip("=")
        async with TestServer(app) as issuer:
            config = {
                "id-token": f"a.{claims}.c",
                "refresh-token": "r1",
                "client-id": "me",
                "client-secret": "pw",
                "idp-issuer-url": str(issuer.make_url("")),
            }
            user = {"auth-provider": {"name": "oidc", "config": config}}
            found = await auth.load(write(tmp_path / "config", user))
            assert await found.header() == "Bearer new"
        with pytest.raises(auth.CredentialsError, match="log in again"):
            await auth.load(tmp_path / "config")


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(120, func_only=True)  # without the start of the cluster
class TestRealServer:
    async def test_certificate_and_tokens(self, kubeconfig: Path, tmp_path: Path):
        """A client certificate is accepted; a wrong token is refused, also after a renewal."""
        found = await auth.load(kubeconfig)
        client = KubeClient(HttpTransport(found))
        assert (await client.get(NAMESPACES, "default")).metadata.name == "default"
        assert await found.header() is None
        await client.close()
        cluster = cluster_of(kubeconfig)
        stranger = KubeClient(HttpTransport(await auth.load(write(tmp_path / "config", {"token": "x"}, cluster))))
        with pytest.raises(errors.Unauthorized):
            await stranger.get(PODS, "x", "default")
        await stranger.close()
