"""Builders of documents as the compiler would create them."""

from dayfly.link.wire import Offer
from dayfly.spec.lifecycle import (
    As,
    Baseline,
    EnvChange,
    Exec,
    ForkUnit,
    Lifecycle,
    Ref,
    Target,
    Unit,
    UnitInput,
    UnitOutput,
    UnitRetry,
    UnitTimeouts,
)

TARGET = Target(kind="Sandbox", name="box", uid="u")


def step(name, script="", *, inputs=(), outputs=(), image="", template=None, env=None, **limits):
    """An exec unit. `outputs` are `name=path` pairs; `limits` are fields of `UnitRetry` and `UnitTimeouts`.

    Inputs are `name=unit.output` (or `name=resource:unit.output`), given as the variable NAME.
    """
    retry = {key: limits.pop(key) for key in ("idempotent", "limit", "backoff_ms") if key in limits}
    return Unit(
        name=name,
        kind="exec",
        inputs=tuple(item if isinstance(item, UnitInput) else given(item) for item in inputs),
        outputs=tuple(
            item if isinstance(item, UnitOutput) else UnitOutput(name=item[0], path=item[1]) for item in outputs
        ),
        retry=UnitRetry(**{"backoff_ms": 50, **retry}),
        timeouts=UnitTimeouts(**limits),
        exec=Exec(script=f"#!/bin/sh\n{script}\n", image=image, pod_template=template, env=env or {}),
    )


def given(text):
    name, source = text.split("=")
    resource, _, rest = source.rpartition(":")
    unit, _, output = rest.rpartition(".")
    return UnitInput(name=name, from_=Ref(unit=unit, output=output, resource=resource), as_=As(env=name.upper()))


def constant(name, value, **as_):
    return UnitInput(name=name, value=value, as_=As(**(as_ or {"env": name.upper()})))


def resource(name, create=(), delete=()):
    return Lifecycle(target=TARGET, resource=name, pre_start=tuple(create), post_stop=tuple(delete))


def hooks(**events):
    return Lifecycle(target=TARGET, **{event: tuple(units) for event, units in events.items()})


def fork(baseline="app", *, inputs=(), env=(), images=(), patch=None, **limits):
    of = Baseline(kind="Deployment", namespace="default", name=baseline)
    return Unit(
        name=baseline,
        kind="fork",
        inputs=tuple(given(item) for item in inputs),
        timeouts=UnitTimeouts(**limits),
        fork=ForkUnit(baseline=of, env=tuple(env), images=tuple(images), patch=patch),
    )


def set_env(name, value="", **more):
    return EnvChange(name=name, value=value, **more)


def offer(*documents, uid="u", forks=(), **times):
    return Offer(uid=uid, name="box", target=TARGET, documents=documents, forks=tuple(forks), **times)
