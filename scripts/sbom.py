"""Bills of materials (CycloneDX 1.6) and licences of what a release contains."""

import dataclasses
import email
import io
import json
import re
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy import debian


@dataclasses.dataclass(frozen=True)
class Package:
    """A package of an ecosystem (`pypi`, `npm`), with the texts of its licence files."""

    ecosystem: str
    name: str
    version: str
    licence: str = ""
    texts: tuple[str, ...] = ()
    architecture: str = ""

    @property
    def purl(self) -> str:
        """The package URL, which identifies it."""
        version = f"@{self.version}" if self.version else ""
        architecture = f"?arch={self.architecture}" if self.architecture else ""
        return f"pkg:{self.ecosystem}/{self.name.replace('@', '%40')}{version}{architecture}"


def page_packages(lock: Mapping[str, Any]) -> list[Package]:
    """Return the npm packages that the web page contains, by its lock file."""
    return [
        Package("npm", path.rpartition("node_modules/")[2], found["version"], found.get("license", ""))
        for path, found in sorted(lock["packages"].items())
        if path and not found.get("dev")
    ]


def locked(requirements: str) -> list[Package]:
    """Return the packages of a locked requirements file."""
    return [Package("pypi", *found) for found in re.findall(r"^([\w.-]+)==([\w.+!-]+)", requirements, re.MULTILINE)]


def image_packages(image: Path) -> list[Package]:
    """Return the Python packages in the layers of an OCI archive, and the Debian packages that it names."""
    found = {each.purl: each for files in _opened_layers(image) for each in _installed(files)}
    return sorted(found.values(), key=lambda each: each.purl)


def _opened_layers(image: Path) -> Iterator[tarfile.TarFile]:
    with tarfile.open(image) as archive:
        for digest in sorted(set(_layers(archive, json.loads(_read(archive, "index.json"))))):
            with tarfile.open(fileobj=io.BytesIO(_read(archive, _blob(digest)))) as files:
                yield files


def _layers(archive: tarfile.TarFile, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digests of the layers of a manifest, or of all manifests of an index."""
    for each in document.get("layers", []):
        yield each["digest"]
    for each in document.get("manifests", []):
        yield from _layers(archive, json.loads(_read(archive, _blob(each["digest"]))))


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, f"{name} is a file"
    return file.read()


def _installed(files: tarfile.TarFile) -> list[Package]:
    names = [entry.name for entry in files.getmembers() if entry.isfile()]
    found = [_debian_package(files, name, names) for name in names if name.startswith(f"{debian.RECORDS}/")]
    for name in names:
        folder, _, last = name.rpartition("/")
        if last == "METADATA" and folder.endswith(".dist-info"):
            texts = [each for each in names if each.startswith(f"{folder}/") and _is_licence(each)]
            metadata = email.message_from_bytes(_read(files, name))
            found.append(
                Package(
                    "pypi",
                    metadata["Name"].lower(),
                    metadata["Version"],
                    _licence_of(metadata),
                    tuple(_read(files, each).decode(errors="replace") for each in texts),
                )
            )
    return found


def _debian_package(files: tarfile.TarFile, record: str, names: Collection[str]) -> Package:
    fields = email.message_from_bytes(_read(files, record))
    licences = f"{debian.DOCS}/{fields['Package']}/copyright"
    texts = (_read(files, licences).decode(errors="replace"),) if licences in names else ()
    name = f"debian/{fields['Package']}"
    return Package("deb", name, fields["Version"], "see its text" if texts else "", texts, fields["Architecture"])


def _is_licence(path: str) -> bool:
    return bool(re.search(r"(licen[cs]e|copying|notice)[^/]*$", path, re.IGNORECASE))


def _licence_of(metadata: Any) -> str:
    """Return the licence of a package's metadata: an expression, a short name, or what the classifiers name."""
    if expression := metadata["License-Expression"]:
        return str(expression)
    classifiers = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier", []) if "License ::" in each]
    short = str(metadata["License"] or "").strip()
    return " and ".join(classifiers) or (short if "\n" not in short else "")


def document(name: str, version: str, contained: Iterable[Package], needed: Iterable[Package]) -> dict[str, Any]:
    """Return a bill of materials. `needed` packages are installed beside it, and are no part of it."""
    own = {"type": "application", "name": name, "version": version, "bom-ref": name}
    components = [_component(each, "required") for each in contained] + [
        _component(each, "excluded") for each in needed
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own | {"licenses": [{"expression": "Apache-2.0"}]}},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": sorted(each["bom-ref"] for each in components)}],
    }


def _component(package: Package, scope: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "purl": package.purl,
        "name": package.name,
        "version": package.version,
        "scope": scope,
    }
    if package.licence:
        found["licenses"] = [{"license": {"name": package.licence}}]
    return found


def licences(packages: Iterable[Package]) -> str:
    """Return the licence of each package, with the texts that it contains."""
    parts = []
    for each in packages:
        title = f"{each.name} {each.version}: {each.licence or 'see its text'}"
        parts.append("\n\n".join([title, *(text.strip() for text in each.texts)]))
    return f"\n\n{'-' * 78}\n\n".join(parts) + "\n"
