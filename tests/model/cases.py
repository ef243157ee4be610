"""Cases that the search explores completely: small plans, few operators, few faults."""

from typing import Any, NamedTuple

import msgspec
from tests.model.engine import CONST, Config
from tests.plan.builders import document, fork, plan_of, unit

from dayfly.plan.sealed import Plan
from dayfly.spec.lifecycle import LifecycleEvent, Object, Unit, UnitRetry, unit_id

ROLES = {
    LifecycleEvent.PRE_START: CONST["ROLE_CREATE"],
    LifecycleEvent.POST_START: CONST["ROLE_CREATE"],
    LifecycleEvent.PRE_STOP: CONST["ROLE_PRE_STOP"],
    LifecycleEvent.POST_STOP: CONST["ROLE_POST_STOP"],
}
AT_REST: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job"}
AT_ONCE: dict[str, Any] = {"apiVersion": "db.example.org/v1", "kind": "Claim"}
FORMS = {"Job": CONST["OBJECT_AT_REST"], "Claim": CONST["OBJECT_AT_ONCE"]}


def making(manifest: dict[str, Any]) -> Unit:
    """A unit that makes an object."""
    return _of_object(unit("make"), Object(written={"manifest": manifest}))


def removing(*reads: str) -> Unit:
    """The unit that removes it."""
    return _of_object(unit("remove", *reads, retry=UnitRetry(idempotent=True, limit=0)), Object(remove="make"))


def _of_object(plain: Unit, item: Object) -> Unit:
    return msgspec.structs.replace(plain, kind="object", exec=None, object=item)


LATER = msgspec.structs.replace(fork("web"), after=("fork:shop/app",))
PLANS = {
    "one": plan_of(document(pre_start=(unit("make"),), post_stop=(unit("drop"),))),
    "chain": plan_of(
        document(
            pre_start=(unit("make", retry=UnitRetry(idempotent=True, limit=2)), unit("seed", "make")),
            post_stop=(unit("drop", "make"),),
        )
    ),
    "fork": plan_of(document(pre_start=(unit("make"),), post_stop=(unit("drop"),)), forks=(fork(),)),
    "tidied": plan_of(document("", post_stop=(unit("drop"),))),
    "watched": plan_of(document("", pre_stop=(unit("drain"),), post_stop=(unit("drop"),))),
    "pair": plan_of(document("", post_stop=(unit("drop"),)), forks=(fork(), LATER)),
    "job": plan_of(document(pre_start=(making(AT_REST),), post_stop=(removing(),))),
    "claim": plan_of(document(pre_start=(making(AT_ONCE),), post_stop=(removing(),))),
    "claim and drop": plan_of(document(pre_start=(making(AT_ONCE),), post_stop=(removing(), unit("drop", "remove")))),
    "claim and seed": plan_of(document(pre_start=(making(AT_ONCE), unit("seed", "make")), post_stop=(removing(),))),
    "drain": plan_of(document("", pre_stop=(unit("drain"),), post_stop=(unit("drop"),)), forks=(fork(),)),
}


class Case(NamedTuple):
    """One search."""

    plan: str
    ops: int
    faults: tuple[str, ...]
    budget: int = 1
    uids: int = 1
    mutations: tuple[str, ...] = ()
    liveness: bool = True
    ignored: tuple[str, ...] = ()
    most: int = 60_000_000

    def config(self) -> Config:
        plan: Plan = PLANS[self.plan]
        config = Config(
            units=len(plan.steps) + len(plan.kept),
            ops=self.ops,
            uids=self.uids,
            mutations=sum(CONST[name] for name in self.mutations),
            faults=sum(CONST[name] for name in self.faults),
            budget=self.budget,
            most=self.most,
            ignored=sum(1 << CONST[name] for name in self.ignored),
            liveness=self.liveness,
        )
        names = list(plan.steps)
        for at, step in enumerate(plan.steps.values()):
            retry = step.unit.retry
            config.role[at] = ROLES[step.event]
            config.starts[at] = (retry.limit if retry.idempotent else 1) if step.creates else 0
            config.needs[at] = names.index(step.needs[0]) if step.needs else -1
            item = step.unit.object
            if item is not None:
                config.object[at] = CONST["OBJECT_REMOVE"] if item.remove else FORMS[item.written["manifest"]["kind"]]
                config.makes[at] = names.index(unit_id(step.resource, item.remove)) if item.remove else -1
        kept = list(plan.kept)
        for at, each in enumerate(plan.kept.values(), len(names)):
            config.role[at], config.starts[at] = CONST["ROLE_FORK"], 0
            config.needs[at] = len(names) + kept.index(each.after[0]) if each.after else -1
        return config


# The searches to a fixpoint. None may find anything.
QUICK = {
    "two operators, one unit": Case("one", 2, ()),
    "two operators that crash and lose answers": Case("one", 2, ("CRASH",)),
    "pods deleted by users": Case("one", 2, ("DELETE_PODS",)),
    "ends that kubelets know nothing of": Case("one", 2, ("LOSE_STATUS", "FAIL_CREATE")),
    "failures": Case("one", 2, ("FAIL_CREATE", "FAIL_STOP")),
    "a time to live": Case("one", 2, ("EXPIRE",), uids=2),
    "three operators": Case("one", 3, ()),
    "a chain with a retry": Case("chain", 2, ("FAIL_CREATE",)),
    "images missing": Case("one", 2, ("LACK_IMAGES",)),
    "images missing, the spare one too": Case("one", 2, ("LACK_IMAGES", "LACK_SPARE")),
    "three operators, images missing": Case("one", 3, ("LACK_IMAGES",)),
    "a fork": Case("fork", 2, ()),
    "a fork and its preStop": Case("drain", 2, ("FAIL_STOP",)),
    "a fork after another": Case("pair", 2, ()),
    "an object born at rest, all that may befall it": Case(
        "job", 2, ("STILL", "CRASH", "DELETE_PODS", "FAIL_CREATE", "LATE", "EXPIRE"), uids=2
    ),
    "an object that acts at once, all but standing still": Case(
        "claim", 2, ("CRASH", "DELETE_PODS", "FAIL_CREATE", "LATE", "EXPIRE"), uids=2
    ),
    "an object that acts at once, all but crashes": Case(
        "claim", 2, ("STILL", "DELETE_PODS", "FAIL_CREATE", "LATE", "EXPIRE"), uids=2
    ),
    "three operators and an object born at rest": Case("job", 3, ("STILL", "CRASH")),
    "three operators and an object that acts at once": Case("claim", 3, ("STILL",)),
    "an object, and a delete script that waits for its removal": Case("claim and drop", 2, ("CRASH", "FAIL_STOP")),
    "an object that a script waits for": Case("claim and seed", 2, ("CRASH", "FAIL_CREATE")),
    "a target that starts and stops by itself": Case("watched", 2, ("LIVES", "FAIL_STOP", "CRASH")),
    "the same, and a fork": Case("drain", 2, ("LIVES",)),
}
LONG = {
    "three operators and an object born at rest, all that may befall it": Case(
        "job", 3, ("STILL", "CRASH", "DELETE_PODS", "FAIL_CREATE", "LATE", "EXPIRE"), uids=2
    ),
    "three operators and an object that acts at once, all but standing still": Case(
        "claim", 3, ("CRASH", "DELETE_PODS", "FAIL_CREATE", "LATE", "EXPIRE"), uids=2
    ),
    "two operators, a chain with a retry, crashes": Case("chain", 2, ("FAIL_CREATE", "CRASH")),
    "two operators, a chain with a retry, pods deleted": Case("chain", 2, ("FAIL_CREATE", "DELETE_PODS")),
    "three operators that crash and lose answers": Case("one", 3, ("CRASH",)),
    "three operators, pods deleted": Case("one", 3, ("DELETE_PODS",)),
    "three operators, names used again": Case("one", 3, (), uids=2),
    "two operators, one unit, all but lost proof": Case(
        "one", 2, ("CRASH", "DELETE_PODS", "LATE", "FAIL_CREATE", "FAIL_STOP", "EXPIRE")
    ),
    "finalizers stripped": Case("one", 2, ("DELETE_PODS", "STRIP", "FAIL_CREATE"), uids=2),
    "nodes lost": Case("one", 2, ("LOSE_NODES", "DELETE_PODS", "LOSE_STATUS"), uids=2),
    "a chain with a retry, finalizers stripped": Case("chain", 2, ("STRIP", "FAIL_CREATE")),
    "images missing, crashes, pods deleted": Case("one", 2, ("LACK_IMAGES", "CRASH", "DELETE_PODS", "LATE")),
    "images missing, crashes, the spare one too": Case("one", 2, ("LACK_IMAGES", "LACK_SPARE", "CRASH", "LATE")),
    "images missing, nodes lost": Case("one", 2, ("LACK_IMAGES", "LOSE_NODES", "LOSE_STATUS", "LATE"), uids=2),
    "forks deleted": Case("fork", 2, ("DELETE_PODS",)),
    "forks stripped": Case("fork", 2, ("STRIP",), uids=2),
    "a fork and its preStop, crashes": Case("drain", 2, ("CRASH", "FAIL_STOP")),
    "three operators, a fork": Case("fork", 3, ()),
    "a fork after another, crashes": Case("pair", 2, ("CRASH",)),
    "a target that starts and stops by itself, pods deleted": Case("watched", 3, ("LIVES", "DELETE_PODS", "FAIL_STOP")),
    "the same, and a fork, crashes": Case("drain", 2, ("LIVES", "CRASH", "FAIL_STOP")),
    "a fork, crashes, deleted": Case("fork", 2, ("CRASH", "DELETE_PODS")),
}
