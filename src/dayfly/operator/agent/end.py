"""The host's end of the link, where most of what is asked for lies in the cluster, which is asked in turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakValueDictionary

from dayfly.kube import errors
from dayfly.link import log_pieces, wire
from dayfly.link.host_end import HostEnd, OfKept
from dayfly.link.host_interface import Host
from dayfly.link.wire import Verdict
from dayfly.operator.agent import answers
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject

log = logging.getLogger(__name__)


class ServedEnd(HostEnd):
    """`run` finds the run of a sandbox."""

    def __init__(self, host: Host, cluster: ClusterWatches, run: Callable[[str], RunObject | None]) -> None:
        super().__init__(host)
        self._told = host
        self._cluster = cluster
        self._run = run
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ordered(self, order: wire.Order) -> Verdict:
        """Each takes several requests to the cluster: of two offers that come together the later one is to be left."""
        async with self._turns.setdefault(order.uid, asyncio.Lock()):
            return await super().ordered(order)

    def news(self, uid: str) -> wire.Standing:
        """With its report: whoever reads it at the control plane is not to wait for a question that goes back here."""
        return self._told.standing(uid) or super().news(uid)

    def look_up(self, question: OfKept) -> None:
        self.begin(self._ask(question))

    async def _ask(self, question: OfKept) -> None:
        try:
            found = await self._find_out(question)
        except errors.ApiError as fault:
            self.reply(question, Verdict.UNAVAILABLE, str(fault))
        except Exception:
            log.exception("%s failed", type(question).__name__)
            self.reply(question, Verdict.FAILED, "the operator's log has the details")
        else:
            self.say(found)

    async def _find_out(self, question: OfKept) -> wire.Answer:
        run = self._run(question.uid)
        match question:
            case wire.AskValues():
                found = await answers.values(self._cluster, run) if run is not None else ()
                return wire.Values(**question.address, values=found)
            case wire.AskHistory():
                entries = answers.history(run) if run is not None else ()
                return wire.History(**question.address, entries=entries)
        kept = await answers.logs(self._cluster.client, run) if run is not None else {}
        infos = answers.infos(kept)
        if isinstance(question, wire.AskLogs):
            return wire.Logs(**question.address, logs=infos)
        return log_pieces.piece(question, infos, lambda key: kept[key])
