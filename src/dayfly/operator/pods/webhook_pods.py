"""Where webhooks are sent in a cluster: in pods of their own, from an image with this very program in it."""

import sys

from dayfly.execute.webhook.render import SenderSetup
from dayfly.operator.pods.fallback_image import FallbackImage

# Found on the image's PATH: where it lies differs from image to image.
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# Not from the folder in which it begins.
_COMMAND = (_PYTHON, "-P", "-m", "dayfly.execute.webhook.sender")
_FOLDER = "/dayfly-state"


class NoSenderError(Exception):
    """No image is known from which a webhook could be sent."""


class Senders:
    """Knows the image of senders, and which servers the administrator lets them reach wherever they are."""

    def __init__(self, image: FallbackImage, allowed: frozenset[str] = frozenset()) -> None:
        self._image = image
        self._allowed = allowed

    async def place(self) -> SenderSetup:
        """Where a webhook of this cluster is sent.

        Raises:
            NoSenderError: this operator runs in no pod, and nobody has named an image.
            errors.ApiError: the server cannot be asked.
        """
        image = await self._image.image()
        if not image:
            raise NoSenderError(
                "no image is known from which a webhook could be sent: start the operator with --webhook-image IMAGE"
            )
        return SenderSetup(command=_COMMAND, folder=_FOLDER, image=image, allowed=self._allowed)
