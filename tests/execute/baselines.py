"""Deployments with all defaults, as an API server returns them: ordinary, privileged on its node, and minimal."""

from __future__ import annotations

import copy
from typing import Any

_DEFAULTS = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
_LOCKED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _probe(port: Any) -> dict[str, Any]:
    times = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    return {"httpGet": {"path": "/healthz", "port": port, "scheme": "HTTP"}, **times}


def _deployment(name: str, pod: dict[str, Any], **meta: Any) -> dict[str, Any]:
    labels = {"app": name, "tier": "front"}
    usual = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": "9",
            "generation": 3,
            "labels": {"app": name, "release": "r"},
            "annotations": {"tracked-by": "gitops", "deployment.kubernetes.io/revision": "4"},
        },
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "template": {"metadata": {"creationTimestamp": None, "labels": labels, **meta}, "spec": {**usual, **pod}},
        },
        "status": {"replicas": 3},
    }


WEB = _deployment(
    "web",
    {
        "serviceAccountName": "web",
        "serviceAccount": "web",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [
            {"name": "tls", "secret": {"secretName": "web-tls", "defaultMode": 420}},
            {"name": "settings", "configMap": {"name": "web", "defaultMode": 420}},
            {"name": "tmp", "emptyDir": {}},
            {
                "name": "identity",
                "projected": {
                    "defaultMode": 420,
                    "sources": [{"serviceAccountToken": {"path": "t", "audience": "vault", "expirationSeconds": 600}}],
                },
            },
        ],
        "initContainers": [
            {"name": "migrate", "image": "migrate:1", "resources": {}, "securityContext": _LOCKED, **_DEFAULTS}
        ],
        "containers": [
            {
                "name": "main",
                "image": "web:1",
                "command": ["web"],
                "args": ["--serve"],
                "env": [
                    {"name": "MODE", "value": "live"},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "web", "key": "token"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "web"}}],
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                "readinessProbe": _probe("http"),
                "volumeMounts": [
                    {"name": "tls", "mountPath": "/tls", "readOnly": True},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
                "securityContext": _LOCKED,
                **_DEFAULTS,
            },
            {
                "name": "side",
                "image": "side:1",
                "resources": {},
                "volumeMounts": [{"name": "identity", "mountPath": "/identity", "readOnly": True}],
                "securityContext": _LOCKED,
                **_DEFAULTS,
            },
        ],
    },
    annotations={"sidecar.istio.io/inject": "true", "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"},
)
AGENT = _deployment(
    "agent",
    {
        "serviceAccountName": "agent",
        "serviceAccount": "agent",
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "runtimeClassName": "sturdy",
        "volumes": [{"name": "root", "hostPath": {"path": "/var/lib/agent", "type": "Directory"}}],
        "containers": [
            {
                "name": "main",
                "image": "agent:1",
                "ports": [{"name": "metrics", "containerPort": 9100, "hostPort": 9100, "protocol": "TCP"}],
                "livenessProbe": {"httpGet": {"host": "127.0.0.1", "path": "/", "port": 9100, "scheme": "HTTP"}},
                "resources": {"limits": {"vendor.example/gpu": "1"}, "requests": {"vendor.example/gpu": "1"}},
                "securityContext": {"privileged": True},
                "volumeMounts": [{"name": "root", "mountPath": "/state", "readOnly": True}],
                **_DEFAULTS,
            }
        ],
    },
)
PLAIN = _deployment("plain", {"containers": [{"name": "main", "image": "plain:1", "resources": {}, **_DEFAULTS}]})

EVERY = {"web": WEB, "agent": AGENT, "plain": PLAIN}


def fresh(name: str) -> dict[str, Any]:
    return copy.deepcopy(EVERY[name])
