"""A container engine with an image of PostgreSQL: the real podman behind Docker's API, and the command line `docker`.

The image is made of this machine's PostgreSQL. Its first program does what that of the official image does: it
initialises the data with `POSTGRES_PASSWORD`, listens only on a socket until then, and runs as the user postgres.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.embedded.test_containers import SETTINGS, STORAGE, conmons
from tests.embedded.test_containers import missing as missing_engine
from tests.examples.external_services import awaited, missing, postgres_programs

IMAGE = "localhost/postgres:17"
_BRIDGE = "dayfly-test0"
_NETWORK = """
[network]
network_backend = "cni"
network_config_dir = "{0}/networks"
default_network = "dayfly-test"
"""
_BRIDGED = """
{"cniVersion": "0.4.0", "name": "dayfly-test", "plugins": [
 {"type": "bridge", "bridge": "%s", "isGateway": true, "ipMasq": true,
  "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.87.0.0/24"}]]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
"""
_ENTRYPOINT = """#!/bin/sh
set -eu
if [ "$(id -u)" = 0 ]; then
    mkdir -p /data/db /run/postgresql && chown -R 999:999 /data /run/postgresql
    exec setpriv --reuid 999 --regid 999 --clear-groups "$0" "$@"
fi
if [ ! -e /data/db/PG_VERSION ]; then
    printf %s "$POSTGRES_PASSWORD" >/data/password
    initdb --pgdata /data/db --username postgres --pwfile /data/password --auth scram-sha-256 --encoding UTF8 --locale C --no-sync
    echo "host all all all scram-sha-256" >>/data/db/pg_hba.conf
    pg_ctl --pgdata /data/db --wait --options "-c listen_addresses='' -k /run/postgresql" start
    pg_ctl --pgdata /data/db --wait stop
fi
exec "$@" -D /data/db -c listen_addresses='*' -k /run/postgresql -c fsync=off
"""


@contextlib.contextmanager
def engine() -> Iterator[dict[str, str]]:
    """Run an engine with the image; yield the environment for `docker`. Skip the test if this machine cannot."""
    if reason := missing_engine() or ("" if shutil.which("docker") else "the command line docker is not installed"):
        missing(reason)
    if os.geteuid() != 0:
        missing("only root can publish a port of a container with a bridge")
    with tempfile.TemporaryDirectory(prefix="podman-") as place:
        folder = Path(place)
        (folder / "networks").mkdir()
        (folder / "networks" / "test.conflist").write_text(_BRIDGED % _BRIDGE)
        (folder / "settings").write_text((SETTINGS + _NETWORK).format(folder))
        (folder / "storage").write_text(STORAGE.format(folder))
        own = {"CONTAINERS_CONF": str(folder / "settings"), "CONTAINERS_STORAGE_CONF": str(folder / "storage")}
        environment = {**os.environ, **own}
        _import_image(folder, environment)
        address = f"unix://{folder}/socket"
        service = subprocess.Popen(["podman", "system", "service", "--time", "0", address], env=environment)
        docker = {"DOCKER_HOST": address}
        try:
            reached = {**os.environ, **docker}
            awaited(lambda: subprocess.run(["docker", "ps"], env=reached, capture_output=True).returncode == 0, service)
            yield docker
            assert not subprocess.check_output(["docker", "ps", "--all", "--quiet"], env=reached), "a container is left"
        finally:
            service.terminate()
            service.wait()
            subprocess.run(["podman", "rm", "--all", "--force"], env=environment, check=True, capture_output=True)
            for monitor in conmons(folder):  # podman keeps the monitor of an ended `docker exec` for five minutes
                with contextlib.suppress(ProcessLookupError):
                    os.kill(monitor, signal.SIGKILL)
            subprocess.run(["podman", "system", "reset", "--force"], env=environment, check=True, capture_output=True)
            subprocess.run(["ip", "link", "delete", _BRIDGE], check=False, capture_output=True)


def _import_image(folder: Path, environment: dict[str, str]) -> None:
    """Build the image from programs of this machine, with the files that they need at the same paths."""
    programs, tree = postgres_programs(), folder / "tree"
    shell = ("/bin/sh", "/usr/bin/id", "/usr/bin/mkdir", "/usr/bin/chown", "/usr/bin/setpriv")
    servers = [str(programs / name) for name in ("postgres", "initdb", "pg_ctl", "pg_isready")]
    loaded = [line.split() for line in subprocess.check_output(["ldd", *shell, *servers], text=True).splitlines()]
    libraries = {word for line in loaded for word in line if word.startswith("/") and not word.endswith(":")}
    share = subprocess.check_output([programs / "pg_config", "--sharedir"], text=True).strip()
    modules = [f"{programs.parent}/lib/{name}.so" for name in ("dict_snowball", "plpgsql")]
    for path in (*shell, *servers, *libraries, *modules):
        copied = tree / path.lstrip("/")
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copied)
    for path in (share, "/usr/share/zoneinfo"):
        shutil.copytree(path, tree / path.lstrip("/"))
    (tree / "etc").mkdir()
    (tree / "etc" / "passwd").write_text("postgres:x:999:999::/data:/bin/sh\nroot:x:0:0::/:/bin/sh\n")
    (tree / "tmp").mkdir(mode=0o1777)
    (tree / "entrypoint").write_text(_ENTRYPOINT)
    (tree / "entrypoint").chmod(0o755)
    archive = folder / "tree.tar"
    subprocess.run(["tar", "-C", tree, "-cf", archive, "."], check=True)
    changes = (f"ENV PATH=/bin:/usr/bin:{programs}", 'ENTRYPOINT ["/entrypoint"]')
    options = [word for change in changes for word in ("--change", change)]
    subprocess.run(["podman", "import", *options, archive, IMAGE], env=environment, check=True, capture_output=True)
    shutil.rmtree(tree)
