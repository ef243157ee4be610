#!/usr/bin/env python3
"""Build the files of a release from a tag, in a clone that has nothing else: the same tag gives the same bytes.

    scripts/release.py dist/release              # the tag of the version in src/dayfly/__init__.py: v0.1.0
    scripts/release.py dist/release --ref HEAD   # a rehearsal with any commit

It writes wheel, sdist, image, chart, manifests, docs, changes, bills of materials, licences, and SHA256SUMS of all.
The image is for amd64 and arm64, with Debian's Python (deploy/image.py).
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import archives, sbom  # noqa: E402 - found beside this script

SUMS = "SHA256SUMS"
# Files of deploy/ for administrators without a checkout; uninstall.sh needs the folders.
MANIFESTS = (
    "install.yaml",
    "server.yaml",
    "routeserver.yaml",
    "steps-network.yaml",
    "agent-patch.yaml",
    "uninstall.sh",
)
MANIFEST_FOLDERS = ("base", "crds", "monitoring", "argocd")


def build(ref: str, out: Path) -> None:
    """Write all files of the commit `ref` into an empty folder."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "dayfly")
        _run("git", "clone", "--quiet", "--no-checkout", str(ROOT), str(source))
        _run("git", "-C", str(source), "checkout", "--quiet", "--detach", _commit(ref))
        born = _output("git", "-C", str(source), "log", "-1", "--format=%ct")
        os.environ["SOURCE_DATE_EPOCH"] = born
        version = _version(source)
        _packages(source, out)
        image = out / f"dayfly-{version}-image.tar"
        _run(sys.executable, str(source / "deploy" / "image.py"), str(image), "--all")
        _run(sys.executable, str(source / "scripts" / "chart.py"), str(out))
        _documents(source, out, version)
        _inventories(source, out, version, image)
    names = sorted(path.name for path in out.iterdir())
    sums = "".join(f"{hashlib.sha256((out / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (out / SUMS).write_text(sums)


def _packages(source: Path, out: Path) -> None:
    """Build the wheel and the sdist with the build backend that pyproject.toml names."""
    tools = ROOT / ".cache" / "release"
    if not (tools / "bin" / "hatchling").exists():
        _run(sys.executable, "-m", "venv", str(tools))
        _run(str(tools / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "hatchling")
    hatchling = [str(tools / "bin" / "hatchling"), "build", "--directory", str(out)]
    subprocess.run([*hatchling, "--target", "sdist", "--target", "wheel"], cwd=source, check=True, stdout=sys.stderr)


def _documents(source: Path, out: Path, version: str) -> None:
    """Write the manifests, the docs as a site, and the changes of this version."""
    deploy = source / "deploy"
    manifests = {name: (deploy / name).read_bytes() for name in MANIFESTS}
    for folder in MANIFEST_FOLDERS:
        found = archives.text_files(deploy / folder)
        manifests |= {f"{folder}/{path}": content for path, content in found.items()}
    patch = subprocess.check_output([sys.executable, source / "scripts" / "argocd.py"])
    manifests["argocd/argocd-cm.yaml"] = patch
    (out / f"dayfly-{version}-manifests.tgz").write_bytes(archives.tgz(manifests))
    (out / "install.yaml").write_bytes(manifests["install.yaml"])
    _run(str(ROOT / "scripts" / "setup.sh"), "docs")
    with tempfile.TemporaryDirectory() as folder:
        _run(str(ROOT / ".cache" / "docs" / "bin" / "python"), str(source / "scripts" / "docs.py"), folder)
        (out / f"dayfly-{version}-docs.tgz").write_bytes(archives.tgz(archives.text_files(Path(folder))))
    (out / "CHANGES.md").write_text(changes((source / "CHANGELOG.md").read_text(), version))


def _inventories(source: Path, out: Path, version: str, image: Path) -> None:
    """Write the bills of materials of wheel, image and chart, and the licences of what they contain."""
    page = sbom.page_packages(json.loads((source / "page" / "package-lock.json").read_text()))
    runner = [sbom.Package("generic", "musl", "", "MIT")]  # linked into the runner programs by its compiler
    image_packages = sbom.image_packages(image)
    parts = {
        "wheel": ([*runner, *page], sbom.locked((source / "requirements" / "run.txt").read_text())),
        "image": ([*image_packages, *runner, *page], []),
        "chart": ([], [sbom.Package("oci", "dayfly.invalid/operator", version, "Apache-2.0")]),
    }
    for name, (contained, needed) in parts.items():
        text = json.dumps(sbom.document(f"dayfly {name}", version, contained, needed), indent=1, sort_keys=True)
        (out / f"dayfly-{version}-{name}.cdx.json").write_text(f"{text}\n")
    (out / f"dayfly-{version}-licences.txt").write_text(sbom.licences([*image_packages, *runner, *page]))


def changes(changelog: str, version: str) -> str:
    """Return the entry of a version.

    Raises:
        SystemExit: there is none.
    """
    found = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"dayfly: CHANGELOG.md has no entry for {version}; add one")
    return found[0].rstrip() + "\n"


def _version(source: Path) -> str:
    found = re.search(r'__version__ = "([^"]+)"', (source / "src" / "dayfly" / "__init__.py").read_text())
    assert found, "the package has a version"
    return found[1]


def _commit(ref: str) -> str:
    return _output("git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def _output(*command: str) -> str:
    return subprocess.check_output(command, text=True).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder for the files; it must be empty or absent")
    parser.add_argument("--ref", help="a commit; by default the tag of the version")
    given = parser.parse_args()
    out = given.folder.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        sys.exit(f"dayfly: {out} is not an empty folder; remove it or choose another folder")
    ref = given.ref or f"v{_version(ROOT)}"
    try:
        _commit(ref)
    except subprocess.CalledProcessError:
        sys.exit(f"dayfly: there is no tag {ref}; create it, or rehearse with --ref HEAD")
    out.mkdir(parents=True, exist_ok=True)
    build(ref, out)
    sys.stdout.write((out / SUMS).read_text())


if __name__ == "__main__":
    main()
