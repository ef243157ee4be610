#!/usr/bin/env python3
"""Pack the Helm chart: deploy/chart, with the manifests of deploy/ below manifests/.

    scripts/chart.py FOLDER       # writes dayfly-VERSION.tgz, and dayfly-VERSION-chart.tar, an OCI image layout

It needs no Helm. The same checkout gives the same bytes.
"""

import argparse
import json
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import archives  # noqa: E402 - found beside this script

DEPLOY = ROOT / "deploy"
OPTIONAL = (("server", "server.yaml"), ("routeServer", "routeserver.yaml"))
CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
CHART_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def files() -> dict[str, bytes]:
    """Return the files of the chart, by their paths in it."""
    base = yaml.safe_load((DEPLOY / "base" / "kustomization.yaml").read_text())["resources"]
    crds = yaml.safe_load((DEPLOY / "crds" / "kustomization.yaml").read_text())["resources"]
    sources = {f"crds/{name}": DEPLOY / "crds" / name for name in crds}
    sources |= {f"operator/{name}": DEPLOY / "base" / name for name in base if name != "../crds"}
    sources |= {f"{part}/{name}": DEPLOY / name for part, name in OPTIONAL}
    manifests = {f"manifests/{path}": source.read_bytes() for path, source in sources.items()}
    return archives.text_files(DEPLOY / "chart") | manifests | {"LICENSE": (ROOT / "LICENSE").read_bytes()}


def pack(folder: Path) -> list[Path]:
    """Write both archives and return their paths."""
    content = files()
    metadata = yaml.safe_load(content["Chart.yaml"])
    name, version = metadata["name"], metadata["version"]
    chart = archives.tgz({f"{name}/{path}": data for path, data in content.items()})
    config = json.dumps(metadata, sort_keys=True).encode()
    layout = archives.oci_layout(version, config, CONFIG_TYPE, [(CHART_TYPE, chart)])
    folder.mkdir(parents=True, exist_ok=True)
    made = {folder / f"{name}-{version}.tgz": chart, folder / f"{name}-{version}-chart.tar": layout}
    for path, data in made.items():
        path.write_bytes(data)
    return list(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if folder.exists() and not folder.is_dir():
        parser.error(f"{folder} is not a folder; choose another one")
    for path in pack(folder):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
