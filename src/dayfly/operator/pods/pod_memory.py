"""What is remembered of one pod, as long as its run knows it."""

from dayfly.operator.outputs.log_outputs import LogWait
from dayfly.operator.pods.pod_events import Silence
from dayfly.plan.world import Objection


class PodMemory:
    """Each part is read and written by whoever knows its meaning."""

    def __init__(self) -> None:
        self.judged: str | None = None
        """What is wrong with it as it is stored: empty if nothing is, None if that is yet to be judged."""
        self.apart: Objection | None = None
        """What is to be said if it was too old to be let go the moment it was made."""
        self.silence = Silence()
        self.log_wait = LogWait()
