"""Archives whose bytes depend only on their content: sorted entries without times and owners."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def tar(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of the files, by their paths."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return output.getvalue()


def tgz(files: Mapping[str, bytes]) -> bytes:
    """Return a compressed tar archive of the files."""
    return gzip.compress(tar(files), mtime=0)


def text_files(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, by their paths in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def oci_layout(tag: str, config: bytes, config_type: str, layers: list[tuple[str, bytes]]) -> bytes:
    """Return an archive of an OCI image layout with one manifest, whose layers have a media type each."""
    blobs: dict[str, bytes] = {}

    def store(media_type: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": store(config_type, config),
        "layers": [store(media_type, content) for media_type, content in layers],
    }
    named = store(MANIFEST, json.dumps(manifest).encode())
    named["annotations"] = {"org.opencontainers.image.ref.name": tag}
    index = {"schemaVersion": 2, "manifests": [named]}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
    return tar(files | blobs)


def untar(archive: bytes) -> dict[str, bytes]:
    """Return the files of an archive, by their paths."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {entry.name: opened.extractfile(entry).read() for entry in opened.getmembers() if entry.isfile()}  # type: ignore[union-attr] - files have content
