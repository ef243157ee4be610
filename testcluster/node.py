"""Process 1 of a cluster's namespaces: it mounts file systems, starts the components, and reaps.

`cluster.up` calls it as `python -m testcluster.node FOLDER`, with the shape as one JSON line on standard input.
When it ends for any reason, the kernel ends all other processes in its namespaces.
"""

import http.client
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from testcluster import components

PATH = f"{components.HOME}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main(folder: Path) -> None:
    """Run the cluster in this folder until this process ends."""
    # /proc is still the host's: its "self" is our process id there, which `down` uses.
    (folder / "pid.part").write_text(str(Path("/proc/self").readlink()))
    (folder / "pid.part").rename(folder / "pid")
    order = sys.stdin.readline()
    if not order:
        sys.exit("the program that starts the cluster ended before it sent the shape")
    settings = json.loads(order)
    shape = components.Shape(**settings["shape"])
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: os._exit(0))
    for number in (settings["lock"], *settings["outside"]):
        os.set_inheritable(number, False)
    if settings["owner"] is not None:
        os.set_inheritable(settings["owner"], False)
        threading.Thread(target=_end_with, args=[settings["owner"]], daemon=True).start()
    os.environ["PATH"] = PATH  # for components that call iptables, mount and others
    _lay_out_mounts(folder, images_in_memory=shape.images_in_memory)
    _set_up_network(shape)
    Components(shape, settings["outside"]).run()


class Components:
    """The running programs. They are restarted when they end, as by a machine's service manager."""

    def __init__(self, shape: components.Shape, outside: Sequence[int]) -> None:
        self._shape = shape
        self._outside = outside  # the machine's namespaces, for the proxy
        self._handed: list[int] = []  # descriptors that the proxy inherits
        self._running: dict[int, list[str]] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Start all programs, and never return."""
        first, then = components.commands(self._shape)
        if self._outside:
            first.insert(0, self._way_out())
        for command in first:
            self._start(command)
        threading.Thread(target=self._start_behind_api, args=[then], daemon=True).start()
        while True:
            pid, status = os.wait()
            with self._lock:
                command = self._running.pop(pid, [])
            if command:
                code = os.waitstatus_to_exitcode(status)
                sys.stderr.write(f"{command[0]} ended with {code}; it is restarted in a second\n")
                threading.Timer(1, self._start, [command]).start()

    def _way_out(self) -> list[str]:
        """Return the command of the proxy. Its socket belongs to the node, and stays open if the proxy ends."""
        listening = socket.create_server(components.WAY_OUT_ADDRESS).detach()
        self._handed = [listening, *self._outside]
        return components.way_out(*self._handed)

    def _start(self, command: list[str]) -> None:
        log = os.open(f"{components.HOME}/logs/{command[0]}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        name = command[0]
        environment = {"PATH": PATH, "HOME": components.HOME} | components.environment(self._shape, name)
        handed = self._handed if name == components.WAY_OUT else []
        # dup2 to the same number makes it inheritable, and only the new program gets it.
        files = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        files += [(os.POSIX_SPAWN_DUP2, number, number) for number in handed]
        with self._lock:  # otherwise the loop could reap it before it is recorded
            program = components.PROGRAMS.get(name, name)
            pid = os.posix_spawnp(program, command, environment, file_actions=files, setsid=True)
            self._running[pid] = command
        os.close(log)

    def _start_behind_api(self, commands: list[list[str]]) -> None:
        while not _api_answers():
            time.sleep(0.05)
        for command in commands:
            self._start(command)


def _api_answers() -> bool:
    context = ssl.create_default_context(cafile=f"{components.HOME}/pki/ca.crt")
    connection = http.client.HTTPSConnection("127.0.0.1", 6443, context=context, timeout=2)
    try:
        connection.request("GET", "/readyz")  # needs no credentials
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end_with(owner: int) -> None:
    """Wait for the process behind this descriptor to end, then end."""
    poll = select.poll()
    poll.register(owner, select.POLLIN)
    poll.poll()
    os._exit(0)


def _lay_out_mounts(folder: Path, *, images_in_memory: bool) -> None:
    """Mount a private /run and /var, because containerd, CNI and the kubelet write to fixed paths there."""
    _run("mount", "--bind", str(folder), "/mnt")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for path in ("testcluster", "var/upper", "var/work", "settings"):
        Path("/run", path).mkdir(parents=True)
    _run("mount", "--move", "/mnt", components.HOME)
    _run(
        "mount", "-t", "overlay", "overlay", "-o", "lowerdir=/var,upperdir=/run/var/upper,workdir=/run/var/work", "/var"
    )
    if images_in_memory:  # only in this namespace, and removed with it
        Path(components.CONTAINERD_ROOT).mkdir()
        _run("mount", "-t", "tmpfs", "-o", "mode=0711", "tmpfs", components.CONTAINERD_ROOT)
    _run("mount", "-t", "proc", "proc", "/proc")
    for setting, value in components.KERNEL_SETTINGS.items():
        stand_in = Path("/run/settings", setting.replace("/", "."))
        stand_in.write_text(f"{value}\n")
        _run("mount", "--bind", str(stand_in), f"/proc/sys/{setting}")
    _run("mount", "--make-rshared", "/")  # as systemd does on a machine; only in this namespace


def _set_up_network(shape: components.Shape) -> None:
    network = shape.network
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{network.node}/24", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    _run("ip", "route", "add", "default", "via", network.host)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"`{' '.join(command)}` failed: {ended.stderr.strip()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
