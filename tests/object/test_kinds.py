"""Kinds that steps may not create, whatever rights their account has."""

import pytest

from dayfly.spec.errors import SpecError, with_article
from dayfly.spec.steps import object_kinds
from dayfly.spec.steps.kube_object import KubeObject, check, refusal

VERSIONS = {
    "": "v1",
    "apps": "apps/v1",
    "kubernetes.crossplane.io": "kubernetes.crossplane.io/v1alpha2",
}
TABLE = object_kinds.refused()


def version(group):
    return VERSIONS.get(group, f"{group}/v1")


def test_table_has_sixty_dangerous_kinds():
    assert len(TABLE) >= 60
    wanted = {
        ("", "Node"), ("", "Namespace"), ("", "Pod"), ("", "ServiceAccount"), ("authentication.k8s.io", "TokenRequest"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"), ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"), ("scheduling.k8s.io", "PriorityClass"), ("dayfly.dev", "*"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("certificates.k8s.io", "CertificateSigningRequest"), ("policy", "Eviction"),
    }  # fmt: skip
    assert wanted <= set(TABLE)


@pytest.mark.parametrize(("group", "kind"), TABLE)
def test_each_is_refused_in_every_version_and_by_both_readers(group, kind):
    named = "Anything" if kind == object_kinds.ANY else kind
    for written in (version(group), version(group).replace("v1alpha2", "v1").replace("v1", "v2beta3")):
        manifest = {"apiVersion": written, "kind": named}
        assert refusal(manifest)[0] == ("kind",)
        with pytest.raises(SpecError, match=f"no step may create {with_article(named)}: "):
            check(KubeObject(manifest=manifest), (), ())


@pytest.mark.parametrize(
    ("noun", "said"),
    [
        ("Endpoints", "an"), ("Event", "an"), ("Ingress", "an"), ("APIService", "an"), ("HTTPRoute", "an"),
        ("S3Bucket", "an"), ("Job", "a"), ("UserPool", "a"), ("Unicorn", "a"), ("UDPRoute", "a"), ("DNSZone", "a"),
        ("CSIDriver", "a"), ("Update", "an"), ("event", "an"), ("", "a"),
    ],
)  # fmt: skip
def test_kind_has_the_correct_article(noun, said):
    assert with_article(noun) == f"{said} {noun}"


@pytest.mark.parametrize("kind", object_kinds.TOKEN_SECRETS)
def test_secret_with_a_trusted_type_is_refused(kind):
    assert refusal({"apiVersion": "v1", "kind": "Secret", "type": kind})[0] == ("type",)
    assert refusal({"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}) == ((), "")


@pytest.mark.parametrize(
    ("group", "kind"),
    [("", "ConfigMap"), ("", "PersistentVolumeClaim"), ("batch", "Job"), ("apps", "StatefulSet"), ("x.org", "Node")],
)
def test_harmless_or_foreign_kind_is_accepted(group, kind):
    assert refusal({"apiVersion": version(group), "kind": kind}) == ((), "")
