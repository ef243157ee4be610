"""Refused offers: documents, namespaces and keys that a compiler would not produce."""

from __future__ import annotations

import msgspec
import pytest
from tests.operator.rig.cluster_host_bench import BOXES, DOCUMENTS, UID, WEB, Bench, run_story, with_bench

from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.agent.admission import MAX_TEMPLATE_DEPTH, LocalKeys, check_documents, check_kept_units
from dayfly.operator.agent.api_errors import unavailable_on_error
from dayfly.operator.cluster.objects import (
    SERVED_FOR_ANNOTATION,
    SERVED_LABEL,
    SERVED_NAME_ANNOTATION,
    served_for,
)
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError
from dayfly.spec.identity import routing_key
from dayfly.spec.lifecycle import (
    MAX_UNITS_PER_RUN,
    MEMBER_TARGET,
    PARENT_TARGET,
    AcquireUnit,
    Baseline,
    ForkUnit,
    Kind,
    PreviewUnit,
    Route,
    Sharing,
    StepOrigin,
    Target,
    Unit,
)

ENDING = errors.Cause("NamespaceTerminating", "metadata.namespace", "")


@pytest.mark.parametrize(
    ("notes", "told"),
    [
        ({}, "/"),
        ({SERVED_FOR_ANNOTATION: "acme", SERVED_NAME_ANNOTATION: "shop"}, "acme/shop"),
    ],
)
def test_name_at_the_server_is_read_from_annotations(notes, told):
    meta = AnnotatedMeta(name="s", labels={SERVED_LABEL: UID}, annotations=notes)
    assert served_for(meta) == told
    assert served_for(msgspec.structs.replace(meta, labels=None)) == ""


def template():
    """Return the document of a pool member with the steps of the sandbox's resource."""
    return msgspec.structs.replace(DOCUMENTS[0], target=MEMBER_TARGET)


def with_template(found, target=DOCUMENTS[0].target):
    """Return a document that acquires a member with that template."""
    units = [
        Unit(name="make", kind=Kind.ACQUIRE, acquire=AcquireUnit(step="make")),
        Unit(name="release", kind=Kind.ACQUIRE, acquire=AcquireUnit()),
    ]
    return msgspec.structs.replace(
        DOCUMENTS[0],
        target=target,
        pre_start=(units[0],),
        post_start=(),
        pre_stop=(),
        post_stop=(units[1],),
        template=(msgspec.to_builtins(found),),
    )


class TestAdmission:
    def test_run_has_documents_and_a_limited_number_of_units(self):
        check_documents(DOCUMENTS, "acme")
        with pytest.raises(DocumentsRefusedError, match="a run must have documents"):
            check_documents((), "acme")
        most = tuple(msgspec.structs.replace(DOCUMENTS[0].pre_start[0], name=f"s{n}") for n in range(MAX_UNITS_PER_RUN))
        check_documents((msgspec.structs.replace(DOCUMENTS[0], pre_start=most),), "acme")
        for event in ("post_start", "pre_stop", "post_stop"):
            more = msgspec.structs.replace(DOCUMENTS[0], pre_start=most, **{event: DOCUMENTS[0].pre_start})
            with pytest.raises(DocumentsRefusedError, match=f"at most {MAX_UNITS_PER_RUN} units"):
                check_documents((more,), "acme")

    def test_documents_of_other_or_mixed_kinds_are_refused(self):
        for kinds in (("Machine",), ("Sandbox", "RouteGroup")):
            made = [
                msgspec.structs.replace(DOCUMENTS[1], target=Target(kind=kind, name="x", uid="u")) for kind in kinds
            ]
            with pytest.raises(DocumentsRefusedError, match="only sandboxes, route groups and pools"):
                check_documents(tuple(made), "acme")

    def test_template_of_a_pool_is_accepted_without_a_name(self):
        check_documents((template(),), "acme")
        named = Target(kind="PoolMember", name="x", uid="u")
        with pytest.raises(DocumentsRefusedError, match="must have the kind PoolMember, or SharedParent"):
            check_documents((msgspec.structs.replace(template(), target=named),), "acme")

    def test_template_in_a_document_is_accepted(self):
        check_documents((*DOCUMENTS[1:], with_template(template())), "acme")
        nested = with_template(template(), MEMBER_TARGET)
        check_documents((with_template(nested),), "acme")

    def test_template_of_a_parent_is_accepted_with_its_limits(self):
        above = msgspec.structs.replace(
            template(), target=PARENT_TARGET, sharing=Sharing(capacity=1_000, max_parents=32)
        )
        check_documents((with_template(above),), "acme")
        check_documents((with_template(with_template(above, MEMBER_TARGET)),), "acme")

    @pytest.mark.parametrize(
        "sharing",
        [Sharing(capacity=1_001), Sharing(max_parents=33), Sharing(max_parents=10**9), Sharing(linger_ms=-1)],
        ids=str,
    )
    def test_parent_beyond_the_limits_is_refused(self, sharing):
        above = msgspec.structs.replace(template(), target=PARENT_TARGET, sharing=sharing)
        with pytest.raises(DocumentsRefusedError, match="a shared parent must have"):
            check_documents((with_template(above),), "acme")

    @pytest.mark.parametrize(
        "changes", [{"target": PARENT_TARGET}, {"sharing": Sharing()}], ids=["without limits", "member with limits"]
    )
    def test_template_of_no_known_kind_is_refused(self, changes):
        with pytest.raises(DocumentsRefusedError, match="a template must have the kind"):
            check_documents((with_template(msgspec.structs.replace(template(), **changes)),), "acme")

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"origin": StepOrigin(publisher="other", plugin="db")}, "was not published by acme"),
            ({"target": Target(kind="Sandbox", name="x", uid="u")}, "must have the kind PoolMember"),
            ({"target": Target(kind="PoolMember", name="x", uid="")}, "and no name"),
            ({"pre_start": DOCUMENTS[0].pre_start * (MAX_UNITS_PER_RUN + 1)}, f"at most {MAX_UNITS_PER_RUN} units"),
        ],
    )
    def test_template_that_a_sandbox_could_not_run_is_refused(self, changes, problem):
        found = msgspec.structs.replace(template(), **changes)
        for outer in (found, with_template(found, MEMBER_TARGET)):
            with pytest.raises(DocumentsRefusedError, match=problem):
                check_documents((with_template(outer),), "acme")

    def test_template_that_cannot_be_read_is_refused(self):
        unread = msgspec.structs.replace(with_template(template()), template=({"target": {}},))
        with pytest.raises(DocumentsRefusedError, match="cannot read its template"):
            check_documents((unread,), "acme")

    def test_template_without_units_that_acquire_is_refused(self):
        made = with_template(template())
        for alone in (
            msgspec.structs.replace(made, template=()),
            msgspec.structs.replace(made, pre_start=(), post_stop=()),
        ):
            with pytest.raises(DocumentsRefusedError, match="must be together"):
                check_documents((alone,), "acme")

    def test_deeply_nested_templates_are_refused(self):
        nested = template()
        for _ in range(MAX_TEMPLATE_DEPTH):
            nested = with_template(nested, MEMBER_TARGET)
        with pytest.raises(DocumentsRefusedError, match="nested 3 deep"):
            check_documents((with_template(nested),), "acme")

    def test_step_with_a_forbidden_pod_is_refused(self):
        work = DOCUMENTS[0].pre_start[0]
        bare = msgspec.structs.replace(work, exec=msgspec.structs.replace(work.exec, image=""))
        with pytest.raises(DocumentsRefusedError, match="is refused"):
            check_documents((msgspec.structs.replace(DOCUMENTS[0], pre_start=(bare,)),), "acme")

    @pytest.mark.parametrize("namespace", ["sec b", "../sec-b", "sec-b/secrets/x", "a%2fb", ".."])
    def test_namespace_that_is_no_name_is_refused(self, namespace):
        work = DOCUMENTS[0].pre_start[0]
        elsewhere = msgspec.structs.replace(work, exec=msgspec.structs.replace(work.exec, namespace=namespace))
        with pytest.raises(DocumentsRefusedError, match="not the name of a namespace"):
            check_documents((msgspec.structs.replace(DOCUMENTS[0], pre_start=(elsewhere,)),), "acme")

        async def story(bench: Bench):
            of = Baseline(kind="Deployment", namespace=namespace, name="web")
            preview = PreviewUnit(scheme="http", host=f"web.{namespace}.svc", port=1, key="k")
            units = [
                Unit(name="f", kind=Kind.FORK, fork=ForkUnit(baseline=of)),
                Unit(name="r", kind=Kind.ROUTE, route=Route(baseline=of, keys=("k",))),
                Unit(name="p", kind=Kind.PREVIEW, preview=preview),
            ]
            for unit in units:
                with pytest.raises(DocumentsRefusedError, match="cannot be the name of a workload or host"):
                    check_kept_units((unit,), group=False, local_keys=LocalKeys(bench.caches))

        run_story(story)

    @pytest.mark.parametrize(
        ("unit", "group", "said"),
        [
            (Unit(name="r", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=("k",))), False, ""),
            (
                Unit(name="r", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=("k",))),
                True,
                "a route group has no forks",
            ),
            (Unit(name="r", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=("k", "no key"))), False, "r"),
            (
                Unit(name="p", kind=Kind.PREVIEW, preview=PreviewUnit(scheme="http", host="a", port=1, key="k")),
                True,
                "",
            ),
            (
                Unit(name="p", kind=Kind.PREVIEW, preview=PreviewUnit(scheme="http", host="a", port=1, key="")),
                True,
                "p",
            ),
            (
                Unit(name="p", kind=Kind.PREVIEW, preview=PreviewUnit(scheme="ftp", host="a", port=1, key="k")),
                True,
                "ftp",
            ),
        ],
    )
    @with_bench
    async def test_routes_and_previews_with_invalid_keys_are_refused(self, bench: Bench, unit, group, said):
        local_keys = LocalKeys(bench.caches)
        if not said:
            check_kept_units((unit,), group=group, local_keys=local_keys)
            return
        with pytest.raises(DocumentsRefusedError, match=said):
            check_kept_units((unit,), group=group, local_keys=local_keys)

    @with_bench
    async def test_routing_key_of_a_local_sandbox_is_refused(self, bench: Bench):
        local_keys = LocalKeys(bench.caches)
        plain = bench.ask("POST", BOXES, {"metadata": {"name": "plain"}, "spec": {"cluster": "c"}})
        await bench.offer_sandbox()
        key = routing_key(plain["metadata"]["uid"])
        led = Unit(name="r", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=(key,)))
        with pytest.raises(DocumentsRefusedError, match="is the routing key of a sandbox applied in this cluster"):
            check_kept_units((led,), group=False, local_keys=local_keys)
        assert routing_key(bench.box["metadata"]["uid"]) not in local_keys
        bench.ask("DELETE", f"{BOXES}/plain")
        bench.sync_caches()
        check_kept_units((led,), group=False, local_keys=local_keys)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (errors.Forbidden("POST", "no right", status=403), "can grant the right with kubectl create it"),
        (errors.Forbidden("POST", "it ends", status=403, causes=(ENDING,)), "it ends$"),
        (errors.ServerError("POST", "slow", status=500), "slow"),
    ],
)
async def test_api_errors_are_reported_as_unavailable(fault, said):
    class Worker:
        grant_command = "kubectl create it"

        @unavailable_on_error
        async def work(self, *, fails: bool) -> str:
            if fails:
                raise fault
            return "done"

    assert await Worker().work(fails=False) == "done"
    with pytest.raises(HostUnavailableError, match=said):
        await Worker().work(fails=True)
