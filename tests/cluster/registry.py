"""A registry on this machine that has one image, and knows who asked for it."""

import contextlib
import json
import ssl
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from testcluster import cluster as clusters

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry(ThreadingHTTPServer):
    """Serves the manifest and blobs of an archive for any name and tag."""

    daemon_threads = True

    def __init__(self, address: str, archive: Path) -> None:
        super().__init__((address, 0), _Answers)
        self.asked_from: set[str] = set()
        with tarfile.open(archive) as files:
            entries = [each for each in files.getmembers() if each.isfile()]
            self.files = {entry.name: files.extractfile(entry).read() for entry in entries}
        self.manifest = json.loads(self.files["index.json"])["manifests"][0]["digest"]

    @property
    def name(self) -> str:
        """As an image's name begins."""
        return "{}:{}".format(*self.server_address)


@contextlib.contextmanager
def registry(own: clusters.Cluster, archive: Path) -> Iterator[Registry]:
    """A registry at an address that the node can reach. The node does not check its certificate."""
    server = Registry(own.network.host, archive)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.folder / "pki" / "kubelet.crt", own.folder / "pki" / "kubelet.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    settings = own.folder / "registries" / server.name / "hosts.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[host."https://{server.name}"]\n  skip_verify = true\n')
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Answers(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked_from.add(self.client_address[0])
        *_, kind, reference = self.path.partition("?")[0].split("/")
        digest = self.server.manifest if kind == "manifests" else reference
        body = self.server.files.get(f"blobs/{digest.replace(':', '/')}", b"")
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", _MANIFEST if kind == "manifests" else "application/octet-stream")
        self.send_header("Docker-Content-Digest", digest)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - as http.server has it

    def log_message(self, *_: object) -> None:
        """Drop the log: `asked_from` has the clients."""
