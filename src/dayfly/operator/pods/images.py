"""Images with Dayfly's own program: the fallback image of recalls, and the image from which webhooks are sent."""

import sys
from typing import Any

from dayfly.execute.webhook.render import SenderSetup
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import PODS

_WHOLE_POD = PODS.read_as(dict[str, Any])
CONTAINER = "operator"
# Found on the image's PATH, because its location differs between images.
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# `-P` keeps the working directory out of the import path.
_SENDER_COMMAND = (_PYTHON, "-P", "-m", "dayfly.execute.webhook.sender")
_SENDER_FOLDER = "/dayfly-state"


class FallbackImage:
    """The image that the administrator names, by default the operator's own.

    In recalls, nothing of the image is run, since the pod brings our runner.
    """

    def __init__(self, client: KubeClient, image: str = "", pod: tuple[str, str] | None = None) -> None:
        """`pod` is the namespace and name of our own pod, if the operator runs in one."""
        self._client = client
        self._image = image
        self._pod = pod

    async def find(self) -> str:
        """Return the name of the image; empty if none is named and the operator does not run in a pod.

        Raises:
            errors.ApiError: the API server failed.
        """
        if not self._image and self._pod is not None:
            namespace, name = self._pod
            try:
                found = await self._client.get(_WHOLE_POD, name, namespace)
            except errors.Refused:
                return ""
            self._image = next((each["image"] for each in found["spec"]["containers"] if each["name"] == CONTAINER), "")
        return self._image


class NoSenderError(Exception):
    """No image is known from which a webhook could be sent."""


class WebhookSenders:
    """The setup of pods that send webhooks, and the private servers that these may reach."""

    def __init__(self, image: FallbackImage, allowed: frozenset[str] = frozenset()) -> None:
        self._image = image
        self._allowed = allowed

    async def setup(self) -> SenderSetup:
        """Return the setup of a sender's pod.

        Raises:
            NoSenderError: no image is named, and the operator does not run in a pod.
            errors.ApiError: the API server failed.
        """
        image = await self._image.find()
        if not image:
            raise NoSenderError(
                "no image is known from which a webhook could be sent: start the operator with --webhook-image IMAGE"
            )
        return SenderSetup(command=_SENDER_COMMAND, folder=_SENDER_FOLDER, image=image, allowed=self._allowed)
