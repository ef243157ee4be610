"""A container as the kubelet would make it, by namespaces and chroot: its root, its state volume, its two channels."""

import base64
import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.runner.attempts import Receipt, order, read_receipt

from dayfly.spec import frames

# The shell that sets the mounts up becomes the runner, so the runner is process 1.
ENTER = """
set -e
root=$1; read_only=$2; user=$3; begin=$4; verb=$5; shift 5
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
for device in null zero urandom; do mount --bind "/dev/$device" "$root/dev/$device"; done
for folder in usr bin lib lib64; do
    if [ -d "$root/$folder" ]; then mount --rbind "/$folder" "$root/$folder"; fi
done
if [ "$read_only" = yes ]; then
    for path in dayfly-state dev/termination-log tmp; do mount --bind "$root/$path" "$root/$path"; done
    mount -o remount,bind,ro "$root"
fi
set -- env -i "$@" "$(command -v chroot)" --userspec="$user:$user" --groups= "$root"
if [ "$begin" = / ]; then exec "$@" /dayfly/dayfly-runner "$verb"; fi
exec "$@" /bin/sh -c 'cd "$0" && exec /dayfly/dayfly-runner "$1"' "$begin" "$verb"
"""

MARK = b"\x1e"


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: bytes
    message: bytes

    @property
    def log(self) -> bytes:
        """The output of the script, as a reader of the pod's log receives it."""
        return split_log(self.stdout)[0]

    @property
    def document(self) -> bytes:
        return split_log(self.stdout)[1]

    @property
    def receipt(self) -> Receipt:
        records = [record for record in frames.decode("dayfly-receipt", self.document) if record[0] != "content"]
        return read_receipt(frames.encode("dayfly-receipt", records))

    @property
    def contents(self) -> dict[str, bytes]:
        return contents_of(self.document)

    @property
    def summary(self) -> list[tuple[str, bytes]]:
        """The records of the termination message."""
        head, _, body = self.message.partition(b"\n")
        assert head.decode().split() == ["dayfly-receipt", "1", self.receipt.outcome, str(self.receipt.code)]
        return frames.decode("dayfly-receipt", base64.b64decode(body, validate=False))


def contents_of(document: bytes) -> dict[str, bytes]:
    values = [value for key, value in frames.decode("dayfly-receipt", document) if key == "content"]
    return {name.decode(): content for name, _, content in (value.partition(b"\0") for value in values)}


def split_log(stdout: bytes) -> tuple[bytes, bytes]:
    """The script's bytes and the framed document, by the rules of runner/README.md."""
    said, coded, sealed = [], b"", None
    for line in re.findall(rb"[^\n]*\n|[^\n]+", stdout):
        if not line.startswith(MARK):
            said.append(line)
        elif line.startswith(MARK * 2):
            said.append(line[1:])
        elif line.startswith(MARK + b"="):
            coded += line[2:].rstrip()
        else:
            sealed = line.split()
    document = base64.b64decode(coded, validate=True)
    assert sealed is not None
    assert sealed == [MARK + b"dayfly-end", hashlib.sha256(document).hexdigest().encode()]
    kept = int(dict(frames.decode("dayfly-receipt", document))["log-bytes"])
    return b"".join(said)[:kept], document


@dataclass
class Container:
    root: Path
    read_only: bool = False
    user: int = 0
    folder: str = "/"  # the image's
    verb: str = "pod"
    environment: list[str] = field(default_factory=lambda: ["PATH=/usr/bin:/bin"])

    @classmethod
    def make(
        cls, root: Path, runner: Path, *, shell: bool = True, read_only: bool = False, user: int = 0, folder: str = "/"
    ) -> "Container":
        for name in [
            "dayfly",
            "dayfly-state",
            "dev",
            "proc",
            "tmp",
            *(["usr", "bin", "lib", "lib64"] if shell else []),
        ]:
            (root / name).mkdir(parents=True)
        root.chmod(0o755)
        for name in ("dayfly-state", "tmp"):
            (root / name).chmod(0o777)
        shutil.copy(runner, root / "dayfly/dayfly-runner")
        for name in ("null", "zero", "urandom", "termination-log"):
            (root / "dev" / name).touch()
        (root / "dev/termination-log").chmod(0o666)
        return cls(root, read_only, user, folder)

    def write(self, script: str | bytes | None = None, **keys: object) -> "Container":
        (self.root / "dayfly/order").write_bytes(order(script, **keys))
        return self

    def secret(self, name: str, value: bytes) -> str:
        (self.root / "dayfly" / name).write_bytes(value)
        return f"/dayfly/{name}"

    def start(self) -> subprocess.Popen[bytes]:
        (self.root / "dev/termination-log").write_bytes(b"")
        read_only = "yes" if self.read_only else "no"
        enter = ["sh", "-c", ENTER, "enter", str(self.root), read_only, str(self.user), self.folder, self.verb]
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--", *enter, *self.environment]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def end(self, process: subprocess.Popen[bytes], seconds: float = 20) -> Ended:
        stdout, _ = process.communicate(timeout=seconds)
        return Ended(process.returncode, stdout, (self.root / "dev/termination-log").read_bytes())

    def run(self, script: str | bytes | None = None, **keys: object) -> Ended:
        if script is not None or keys:
            self.write(script, **keys)
        return self.end(self.start())


def first_process(of: subprocess.Popen[bytes]) -> int:
    """The host's number for the container's process 1."""
    children = Path(f"/proc/{of.pid}/task/{of.pid}/children").read_text().split()
    return int(children[0])
