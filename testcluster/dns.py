"""DNS for Services and their pods, for programs in a cluster.

It implements a part of Kubernetes' specification (kubernetes/dns, docs/specification.md) that pods need to find each
other: addresses of a Service, of a headless Service, and of an endpoint with a host name. Ranks of an Indexed Job and
members of a StatefulSet have host names. It answers over UDP, with the current state of the API server.
"""

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from testcluster import cluster as clusters

ZONE = ("svc", "cluster", "local")
_A, _INTERNET = 1, 1
_NO_ERROR, _NO_SUCH_NAME = 0, 3
_RESPONSE = 0x8400  # an authoritative answer
_SECONDS = 2  # time to live of an answer, here and at the client


@contextlib.contextmanager
def names(cluster: clusters.Cluster) -> Iterator[None]:
    """Serve names to pods of the cluster, at the address that the kubelet sets in them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind((cluster.network.host, 0))
        thread = threading.Thread(target=_serve, args=(cluster, listener), daemon=True)
        thread.start()
        objects = _leading_to(cluster.network.dns, listener.getsockname())
        try:
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(objects))
            yield
        finally:
            cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=json.dumps(objects))
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread; without a peer it also raises an error
            thread.join()


def answer(query: bytes, cluster: clusters.Cluster, known: "Known") -> bytes:
    """Return the answer to a query, which has one question."""
    number, _, questions = struct.unpack_from(">HHH", query)
    if questions != 1:
        raise ValueError("no question")
    name, end = _name(query, 12)
    kind, class_ = struct.unpack_from(">HH", query, end)
    found = known.addresses(cluster, name)
    wanted = found if kind == _A and class_ == _INTERNET and found else []
    code = _NO_SUCH_NAME if found is None else _NO_ERROR
    head = struct.pack(">HHHHHH", number, _RESPONSE | code, 1, len(wanted), 0, 0)
    records = [
        struct.pack(">HHHIH", 0xC00C, _A, _INTERNET, _SECONDS, 4) + socket.inet_aton(address) for address in wanted
    ]
    return head + query[12 : end + 4] + b"".join(records)


class Known:
    """Recent responses of the API server: ranks that search for each other all send the same queries at once."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[float, int, Any]] = {}

    def addresses(self, cluster: clusters.Cluster, name: tuple[str, ...]) -> list[str] | None:
        """Return the addresses of a name; None if there is no such name."""
        if name[-3:] != ZONE or not 5 <= len(name) <= 6:
            return None
        *host, service, namespace = name[:-3]
        status, found = self._get(cluster, f"/api/v1/namespaces/{namespace}/services/{service}")
        if status != 200:
            return None
        address: str = found["spec"].get("clusterIP", "")
        if address != "None":
            return None if host else [address]
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        _, listed = self._get(cluster, f"{slices}?labelSelector=kubernetes.io%2Fservice-name%3D{service}")
        points = [point for each in listed["items"] for point in each["endpoints"] or ()]
        ready = [point for point in points if point.get("conditions", {}).get("ready", True)]
        chosen = [point for point in ready if not host or point.get("hostname") == host[0]]
        return [address for point in chosen for address in point["addresses"]] or (None if host else [])

    def _get(self, cluster: clusters.Cluster, path: str) -> tuple[int, Any]:
        now = time.monotonic()
        then, status, body = self._said.get(path, (-float(_SECONDS), 0, None))
        if now - then >= _SECONDS / 4:
            status, body = cluster.get(path)
            self._said[path] = now, status, body
        return status, body


def _name(query: bytes, at: int) -> tuple[tuple[str, ...], int]:
    labels = []
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    return tuple(labels), at + 1


def _serve(cluster: clusters.Cluster, listener: socket.socket) -> None:
    known = Known()
    while True:
        try:
            query, who = listener.recvfrom(4096)
        except OSError:
            return
        if not query:
            return
        with contextlib.suppress(OSError, ValueError, IndexError, KeyError, struct.error):  # the client retries
            listener.sendto(answer(query, cluster, known), who)


def _leading_to(address: str, there: tuple[str, int]) -> dict[str, Any]:
    """Return a Service with that address whose only endpoint is outside of the cluster."""
    meta = {"name": "kube-dns", "namespace": "kube-system"}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"clusterIP": address, "ports": ports}}
    host, port = there
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": meta | {"labels": {"kubernetes.io/service-name": "kube-dns"}},
        "addressType": "IPv4",
        "ports": [{"name": "dns", "port": port, "protocol": "UDP"}],
        "endpoints": [{"addresses": [host]}],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [service, slice_]}
