#!/bin/sh
# Renews the locked requirements: versions and hashes only; addresses of registries never enter a file.
set -eu
cd "$(dirname -- "$0")/.."
[ -x .cache/lock/bin/uv ] || { python3 -m venv .cache/lock && .cache/lock/bin/pip install --quiet uv; }
flags="--quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url ${UPGRADE:+--upgrade}"
# shellcheck disable=SC2086
.cache/lock/bin/uv pip compile $flags pyproject.toml -o requirements/run.txt
# shellcheck disable=SC2086
.cache/lock/bin/uv pip compile $flags --extra operator --extra server --extra routing --group dev -c requirements/run.txt pyproject.toml -o requirements/dev.txt
# In a cluster, operator and server run with the versions that were tested.
# shellcheck disable=SC2086
.cache/lock/bin/uv pip compile $flags --extra operator --extra server -c requirements/dev.txt pyproject.toml -o requirements/operator.txt
if grep -n '://' requirements/*.txt; then echo 'an address slipped into the lock files' >&2; exit 1; fi
