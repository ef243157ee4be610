"""Istio in a cluster of ours, as far as tests need it: its definitions, which lie in the Go module of its API."""

from testcluster import build

MODULE = build.HERE / "istio"
_API = "istio.io/api"


def definitions() -> str:
    """The kinds of Istio's networking, as YAML; only the module is fetched, and nothing is built.

    Raises:
        UnavailableError: with the last words of what failed.
    """
    build.check_go("nothing, but the definitions of Istio come as a Go module")
    whole = (build.module(MODULE, _API) / "kubernetes" / "customresourcedefinitions.gen.yaml").read_text()
    return "\n---\n".join(each for each in whole.split("\n---\n") if "\n  group: networking.istio.io\n" in each)
