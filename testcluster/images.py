"""Container images made from folders, without a registry and without a daemon."""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testcluster import build as programs
from testcluster import components

SHELL = "dayfly.test/shell:1"
BUSYBOX = Path("/bin/busybox")
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # each machine of `uname -m`, as images and Debian name it


@dataclasses.dataclass(frozen=True)
class Settings:
    """The default configuration of containers of an image. Empty means unset."""

    entrypoint: Sequence[str] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    user: str = ""
    folder: str = ""


@dataclasses.dataclass(frozen=True)
class Image:
    """An image for one machine (`x86_64`, `aarch64`): its layers as folders, lower ones first."""

    machine: str
    layers: Sequence[Path]
    settings: Settings


def build(name: str, layers: Sequence[Path], settings: Settings, *, to: Path) -> Path:
    """Write an OCI archive for `Cluster.load` or `ctr images import`.

    Args:
        name: the name that pods use. Its tag must not be `latest`, which would be pulled: `dayfly.test/shell:1`.
        layers: folders, lower ones first. Their files keep mode, owner and links; times are dropped.
        settings: entry point and other settings.
        to: the archive's path. The file is renamed into place when it is complete.
    """
    return write(name, [Image(_machine(), layers, settings)], to=to)


def write(name: str, found: Sequence[Image], *, to: Path) -> Path:
    """Write an OCI archive. Images for several machines are in an index, from which each machine takes its own."""
    with readable(), tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        blobs = Path(scratch, "blobs", "sha256")
        blobs.mkdir(parents=True)
        manifests = [_manifest(each, blobs) for each in found]
        if len(found) > 1:
            manifests = [_store({"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}, _INDEX, blobs)]
        manifests[0]["annotations"] = {"io.containerd.image.name": name}
        Path(scratch, "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
        Path(scratch, "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
        part = to.with_name(f"{to.name}.part")
        with tarfile.open(part, "w") as archive:
            for path in ("oci-layout", "index.json", "blobs"):
                archive.add(Path(scratch, path), path, filter=_without_time)
        part.rename(to)
    return to


def _manifest(image: Image, blobs: Path) -> dict[str, Any]:
    """Store the manifest of an image and all that it refers to; return its descriptor."""
    packed = [_pack(layer, blobs) for layer in image.layers]
    platform = {"architecture": ARCHITECTURES[image.machine], "os": "linux"}
    config = {
        **platform,
        "config": {
            "Entrypoint": list(image.settings.entrypoint),
            "Env": [f"{key}={value}" for key, value in image.settings.environment.items()],
            "User": image.settings.user,
            "WorkingDir": image.settings.folder,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in packed]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _store(config, _CONFIG, blobs),
        "layers": packed,
    }
    return _store(manifest, _MANIFEST, blobs) | {"platform": platform}


def pause() -> Path:
    """Return the image of a pod's own container."""
    program = programs.pause()

    def fill(root: Path) -> None:
        shutil.copy2(program, root / "pause")

    return cached(components.PAUSE_IMAGE, program, fill, Settings(entrypoint=["/pause"]))


def shell() -> Path:
    """Return the image SHELL: only busybox, with links for its applets. Its `wget` crashes; use `nc`."""
    return cached(SHELL, BUSYBOX, with_shell, Settings(entrypoint=["/bin/sh"], environment={"PATH": "/bin"}))


def with_shell(root: Path) -> None:
    """Fill a root folder with busybox, links for its applets, users and writable folders."""
    for folder in ("bin", "etc", "root", "tmp", "var/tmp"):
        (root / folder).mkdir(parents=True)
    for folder in ("tmp", "var/tmp"):
        (root / folder).chmod(0o1777)
    shutil.copy2(BUSYBOX, root / "bin" / "busybox")
    applets = subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True).stdout.split()
    for applet in set(applets) - {"busybox"}:
        (root / "bin" / applet).symlink_to("busybox")
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\nnogroup:x:65534:\n")


def cached(name: str, program: Path, fill: Callable[[Path], None], settings: Settings) -> Path:
    """Make an image of one layer, which `fill` writes, once for each version of its program and of these modules."""
    scripts = Path(__file__), Path(fill.__code__.co_filename)
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in (program, *scripts))).hexdigest()[:16]
    folder = programs.cache() / "images"
    target = folder / f"{name.rpartition('/')[2].replace(':', '-')}-{digest}.tar"
    with programs.lock("images"), readable():
        if not target.exists():
            folder.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as root:
                Path(root).chmod(0o755)
                fill(Path(root))
                build(name, [Path(root)], settings, to=target)
    return target


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Make new files readable for all users, as users in containers require, whatever the caller's umask."""
    old = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(old)


def _pack(root: Path, blobs: Path) -> dict[str, Any]:
    """Pack a folder as a layer. The same files give the same digest."""
    part = blobs / "layer.part"
    with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, path.name, filter=_without_time)
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    part.rename(blobs / digest)
    return {"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": (blobs / digest).stat().st_size}


def _without_time(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = 0
    return entry


def _store(document: dict[str, Any], kind: str, blobs: Path) -> dict[str, Any]:
    data = json.dumps(document).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _machine() -> str:
    return os.uname().machine
