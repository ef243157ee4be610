"""Forks of the baselines with patches, rendered as in the operator."""

from __future__ import annotations

import copy
from typing import Any

from tests.execute.baselines import EVERY

from dayfly.execute.fork.render import ForkIdentity, render_fork
from dayfly.execute.fork.rights import ForkPermissions
from dayfly.execute.pod.render import PodSecretKey
from dayfly.spec.lifecycle import Baseline, EnvChange, ForkUnit, Unit

IDENTITY = ForkIdentity(
    "f-box", "box-run", {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "r", "uid": "r"}
)
HOME, AWAY, FREE = (
    ForkPermissions(is_home=True),
    ForkPermissions(is_home=False),
    ForkPermissions(is_home=True, is_free=True),
)
OUTPUT = {"secretKeyRef": {"name": "box-db", "key": "make.url"}}
READS = EnvChange(name="URL", input="db.make.url")


def forked(
    patch: dict[str, Any] | None, *, of: str = "web", permissions: ForkPermissions = HOME, env=(READS,), images=()
) -> Any:
    """Return the manifest, and check that the baseline is unchanged."""
    before = copy.deepcopy(EVERY[of])
    wished = ForkUnit(
        baseline=Baseline(kind="Deployment", namespace="shop", name=of), env=tuple(env), images=images, patch=patch
    )
    inputs = {"db.make.url": PodSecretKey("box-db", "make.url")}
    unit = Unit(name=of, kind="fork", fork=wished)
    try:
        return render_fork(unit, EVERY[of], IDENTITY, inputs=inputs, hosts={}, permissions=permissions)
    finally:
        assert before == EVERY[of], "the baseline must not change"


def strategic(**template: Any) -> dict[str, Any]:
    """Return a patch of the pod template."""
    return {"type": "strategic", "value": {"spec": {"template": template}}}


def pod(**fields: Any) -> dict[str, Any]:
    """Return a patch of the pod."""
    return strategic(spec=fields)


def main(**fields: Any) -> dict[str, Any]:
    """Return a patch of the main container."""
    return pod(containers=[{"name": "main", **fields}])


def json(*operations: Any) -> dict[str, Any]:
    """Return a JSON patch."""
    return {"type": "json", "value": list(operations)}
