"""The programs of a first framework's image on one machine, which has them where the image had them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples.home import ROOT, Home
from tests.examples.kinds import FOLDER
from tests.examples.v1.image import programs

# The test creates no folder at the root of this machine: the server sees a copy of the root with one more folder.
ENTER = """
set -e
root=$1 bin=$2; shift 2
mount -t tmpfs v1 "$root"
for each in /*; do
    if [ -L "$each" ]; then cp -P "$each" "$root$each"
    elif [ -d "$each" ]; then mkdir "$root$each"; mount --rbind "$each" "$root$each"
    fi
done
mkdir -p "$root/signadot/plugin/bin"
mount --bind "$bin" "$root/signadot/plugin/bin"
exec chroot "$root" "$@"
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A running Dayfly on a machine that has the two programs."""
    home = Home(tmp_path / "home", {})
    (root := tmp_path / "root").mkdir()
    bin_ = programs(tmp_path / "bin")
    up = ["./dayfly", "up", "--detach", "--port", "0"]
    entered = ["unshare", "--mount", "/bin/sh", "-c", ENTER, "sh", str(root), str(bin_), "env", f"--chdir={ROOT}", *up]
    subprocess.run(entered, cwd=ROOT, env=home.environment, stdin=subprocess.DEVNULL, check=True, timeout=60)
    try:
        yield home
    finally:
        home.down()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root of a server")
def test_its_programs_run_as_they_did(home: Home):
    home.dayfly("apply", "-f", str(FOLDER / "v1-plugin"), "--set", "image=unused")
    key = home.json("sandbox", "get", "v1-demo")["routingKey"]
    host = f"customers.customerdb.{key}"
    reported = f"{host}.reportdb.{key}"
    assert home.outputs("v1-demo") == {
        "customerdb/provision.host": host,
        "customerdb/provision.port": "5432",
        "reportdb/provision.host": reported,
        "reportdb/provision.port": "5432",
    }
    home.dayfly("sandbox", "delete", "v1-demo")
    for resource, name in (("customerdb", host), ("reportdb", reported)):
        assert f"dropped {name} at port 5432" in home.dayfly("logs", "v1-demo", resource, "deprovision")
