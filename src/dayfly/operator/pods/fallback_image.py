"""The image of recalls, which the nodes can get. Nothing of it is run, since the pod brings our runner."""

from typing import Any

from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import PODS

_WHOLE_POD = PODS.read_as(dict[str, Any])
CONTAINER = "operator"


class FallbackImage:
    """The image that the administrator names, or else the one in which this very operator runs."""

    def __init__(self, client: Client, image: str = "", pod: tuple[str, str] | None = None) -> None:
        """`pod` is the namespace and name of our own pod, if we run in one."""
        self._client = client
        self._image = image
        self._pod = pod

    async def image(self) -> str:
        """Its name; empty if there is none: we run in no pod, and nobody has named one.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        if not self._image and self._pod is not None:
            namespace, name = self._pod
            try:
                found = await self._client.get(_WHOLE_POD, name, namespace)
            except errors.Refused:
                return ""
            self._image = next((each["image"] for each in found["spec"]["containers"] if each["name"] == CONTAINER), "")
        return self._image
