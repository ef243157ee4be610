"""What is remembered of the object of one attempt between turns; it saves reads and words, and nothing rests on it."""

from typing import Final

import msgspec

from dayfly.plan.world import NeverRan, Objection

FIRST_S: Final = 1.0
MOST_S: Final = 30.0
AGAIN_MS: Final = 5_000


class ObjectMemory(msgspec.Struct):
    """`version` is the object's as it was last seen, `tries` how often it was seen so since."""

    version: str = ""
    tries: int = 0
    admitted_at: int | None = None
    """When the server said that it would take the object, in unix milliseconds."""
    definition: str = ""
    """The definition of its kind at that time, as NAME/UID; empty if it has none."""
    refused: Objection | NeverRan | None = None
    """What the server said to our last change of it, or instead of making it."""

    def is_admitted(self, now: int) -> bool:
        """Return whether the server has said so recently: rights and kinds may be taken away before the claim."""
        return self.admitted_at is not None and self.admitted_at <= now < self.admitted_at + AGAIN_MS

    def look_again(self, version: str) -> float:
        """Seconds until it is to be looked at again: soon after it has changed, then more and more seldom."""
        self.tries = self.tries + 1 if version == self.version else 0
        self.version = version
        return min(FIRST_S * 2.0 ** min(self.tries, 10), MOST_S)

    def hindrance(self, now: int) -> Objection | None:
        """What stands against another try at this moment, which is unix milliseconds."""
        said = self.refused
        return said if isinstance(said, Objection) and said.since <= now < said.since + AGAIN_MS else None
