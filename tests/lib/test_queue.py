"""The work queue: duplicates, one worker per key, fairness, retries and appointments."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.kube.fake import run

from dayfly.lib.pace import Pace, Urgency
from dayfly.lib.queue import Backoff, QueueClosedError, WorkQueue, work


def now() -> float:
    return asyncio.get_running_loop().time()


class TestQueue:
    def test_keys_coalesce_and_keep_their_order(self):
        """A key that is added three times is processed once; keys are first in, first out."""

        async def main():
            queue = WorkQueue()
            for key in "abaac":
                queue.add(key)
            assert [await queue.take() for _ in range(3)] == ["a", "b", "c"]
            assert len(queue) == 0

        run(main())

    def test_worker_request_waits_for_backoff_after_a_failure(self):
        """A request by the failed worker itself is dropped; requests by others are not."""

        async def main():
            queue = WorkQueue(Backoff(first=10.0), seed=1)
            taken = []

            async def handle(key):
                taken.append((key, now()))
                queue.add(key)
                if len(taken) == 2:
                    asyncio.get_running_loop().call_soon(queue.add, key)
                    await asyncio.sleep(0)
                if len(taken) == 4:
                    queue.close()
                if len(taken) in (1, 2):
                    queue.retry(key)

            queue.add("a")
            await work(queue, handle)
            begun = [at for _, at in taken]
            assert 5 <= begun[1] <= 10, "its own request waits for the back-off"
            assert begun[2] == begun[1], "a request by another task does not"
            assert begun[3] == begun[2], "its own request after a success does not"

        run(main())

    def test_paused_queue_drops_keys_until_it_resumes(self):
        async def main():
            queue = WorkQueue(Backoff(first=1.0), seed=1)
            queue.add("now")
            queue.add("later", after=60)
            queue.retry("failed")
            assert queue.pause() == {"now", "later", "failed"}
            queue.add("ignored")
            queue.add("ignored", after=1)
            await asyncio.sleep(120)
            assert (len(queue), queue.is_paused, queue.failures("failed")) == (0, True, 0)
            queue.resume()
            await asyncio.sleep(120)
            assert len(queue) == 0, "nothing from before the pause comes back"
            queue.add("new")
            assert await queue.take() == "new"

        run(main())

    def test_owners_take_turns(self):
        """An owner with a thousand keys gets every second turn beside an owner with one."""

        async def main():
            queue = WorkQueue(owner=lambda key: key[0])
            for key in [*(f"a{number}" for number in range(5)), "b0", "c0", "b1"]:
                queue.add(key)
            taken = [await queue.take() for _ in range(8)]
            assert taken == ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"]

        run(main())

    def test_owners_share_the_workers_while_several_have_work(self):
        """An owner with a thousand keys gets at most half of the workers while another one has work now and then."""

        async def main():
            queue = WorkQueue(owner=lambda key: key[0], workers=8)
            for key in [*(f"a{number}" for number in range(20)), "b0"]:
                queue.add(key)
            taken = [await queue.take() for _ in range(5)]
            assert taken == ["a0", "b0", "a1", "a2", "a3"]
            fifth = asyncio.create_task(queue.take())
            await asyncio.sleep(1)
            assert not fifth.done(), "its share is four of eight"
            queue.add("b1")
            assert await fifth == "b1", "the share of the other owner is free"
            sixth = asyncio.create_task(queue.take())
            queue.done("a0")
            assert await sixth == "a4"

        run(main())

    def test_an_owner_alone_has_all_workers_again_after_a_while(self):
        async def main():
            queue = WorkQueue(owner=lambda key: key[0], workers=8)
            for key in [*(f"a{number}" for number in range(20)), "b0"]:
                queue.add(key)
            taken = [await queue.take() for _ in range(5)]
            queue.done("b0")
            waiting = [asyncio.create_task(queue.take()) for _ in range(3)]
            await asyncio.sleep(11)
            assert not any(each.done() for each in waiting)
            queue.done(taken[0])
            assert await waiting[0] == "a4"
            assert [await queue.take() for _ in range(4)] == ["a5", "a6", "a7", "a8"], "the finished worker continues"

        run(main())

    def test_many_owners_have_a_quarter_each(self):
        """Otherwise each of a hundred owners would have only one worker, even if the others are idle."""

        async def main():
            queue = WorkQueue(owner=lambda key: key[0], workers=8)
            for key in [*"bcdefghijk", "a0", "a1", "a2"]:
                queue.add(key)
            for key in [await queue.take() for _ in range(10)]:
                queue.done(key)
            assert [await queue.take() for _ in range(2)] == ["a0", "a1"]
            third = asyncio.create_task(queue.take())
            await asyncio.sleep(1)
            assert not third.done()
            queue.done("a1")
            assert await third == "a2"

        run(main())

    def test_earlier_appointments_of_a_key_replace_later_ones(self):
        """A turn can schedule an appointment in an hour, and then an earlier one."""

        async def main():
            queue = WorkQueue()
            for number in range(1000):
                queue.add("a", after=3600.0 - number)
                queue.add("b", after=3600.0 - number)
            assert await queue.take() == "a"
            assert now() == pytest.approx(2601.0)
            assert await queue.take() == "b"

        run(main())

    def test_a_key_added_during_its_work_waits_for_the_end(self):
        """One worker per key, and no key is lost."""

        async def main():
            queue = WorkQueue()
            queue.add("a")
            key = await queue.take()
            queue.add("a")
            assert len(queue) == 0
            queue.done(key)
            assert await queue.take() == "a"

        run(main())

    def test_urgent_once_is_urgent_until_worked_on(self):
        """A key that is added urgently and then normally during its work goes before normal keys."""

        async def main():
            queue = WorkQueue()
            queue.add("a")
            await queue.take()
            queue.add("b")
            queue.add("a", urgency=Urgency.URGENT)
            queue.add("a")
            queue.done("a")
            assert [await queue.take(), await queue.take()] == ["a", "b"]

        run(main())

    def test_a_cancelled_worker_passes_its_key_on(self):
        """A worker that is woken and cancelled at once passes the key on."""

        async def main():
            queue = WorkQueue()
            first, second = (asyncio.create_task(queue.take()) for _ in range(2))
            await asyncio.sleep(1)
            queue.add("a")
            first.cancel()
            async with asyncio.timeout(1):
                assert await second == "a"

        run(main())

    def test_key_of_a_cancelled_worker_is_processed_again(self):
        """A process that loses the lease cancels its workers, and may become the leader again."""

        async def main():
            queue, begun, done = WorkQueue(), [], []

            async def handle(key):
                begun.append(key)
                await asyncio.sleep(1)
                done.append(key)

            queue.add("a")
            first = asyncio.create_task(work(queue, handle))
            await asyncio.sleep(0.5)
            first.cancel()
            await asyncio.wait([first])
            second = asyncio.create_task(work(queue, handle))
            await asyncio.sleep(2)
            assert (begun, done) == (["a", "a"], ["a"])
            second.cancel()

        run(main())

    def test_urgent_keys_go_first_without_starving_others(self):
        """Four urgent keys, then a normal one; a waiting key can become urgent."""

        async def main():
            queue = WorkQueue()
            for number in range(3):
                queue.add(f"n{number}")
            for number in range(6):
                queue.add(f"u{number}", urgency=Urgency.URGENT)
            queue.add("n2", urgency=Urgency.URGENT)
            taken = [await queue.take() for _ in range(9)]
            assert taken == ["u0", "u1", "u2", "u3", "n0", "u4", "u5", "n2", "n1"]

        run(main())

    def test_the_background_goes_last_and_is_not_starved_either(self):
        """A background key after sixteen others; a change makes a background key normal."""

        async def main():
            queue = WorkQueue()
            for number in range(3):
                queue.add(f"b{number}", urgency=Urgency.BACKGROUND)
            for number in range(17):
                queue.add(f"n{number}")
            queue.add("b2")
            taken = [await queue.take() for _ in range(20)]
            assert taken == [*(f"n{number}" for number in range(16)), "b0", "n16", "b2", "b1"]

        run(main())

    def test_appointments(self):
        """The earlier of two appointments counts; a key that is processed before has no appointment."""

        async def main():
            queue = WorkQueue()
            queue.add("a", after=10)
            queue.add("a", after=5)
            queue.add("a", after=20)
            queue.add("b", after=7)
            queue.add("b")
            assert await queue.take() == "b"
            assert now() == 0
            assert await queue.take() == "a"
            assert pytest.approx(now()) == 5
            queue.done("a")
            queue.done("b")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(100):
                    await queue.take()

        run(main())

    def test_backoff_grows_by_key_and_is_jittered(self):
        """Delays double up to the maximum, with jitter; `forget` resets them."""

        async def main():
            queue = WorkQueue(Backoff(first=1.0, maximum=16.0), seed=3)
            waits = [queue.retry("a") for _ in range(8)]
            ceilings = [1, 2, 4, 8, 16, 16, 16, 16]
            assert all(ceiling / 2 <= wait <= ceiling for wait, ceiling in zip(waits, ceilings, strict=True))
            assert len(set(waits)) == len(waits)
            assert queue.retry("b") <= 1
            queue.forget("a")
            assert queue.retry("a") <= 1
            assert 8 <= queue.backoff(20) <= 16, "for what is counted elsewhere"
            assert queue.failures("a") == 1
            queue.close()

        run(main())

    def test_all_retries_together_are_paced(self):
        """A thousand simultaneous failures return at the rate of the bucket."""

        async def main():
            queue = WorkQueue(Backoff(first=0.001), Pace(rate=10.0, burst=10))
            for number in range(110):
                queue.retry(number)
            for _ in range(110):
                queue.done(await queue.take())
            assert pytest.approx(now(), abs=0.2) == 10

        run(main())

    def test_closing_ends_all_workers(self):
        """`close` ends waiting and future calls of `take`."""

        async def main():
            queue = WorkQueue()

            async def nothing(key):
                raise AssertionError(key)

            workers = [asyncio.create_task(work(queue, nothing)) for _ in range(3)]
            await asyncio.sleep(1)
            queue.add("a", after=10)
            queue.close()
            await asyncio.gather(*workers)
            queue.add("b")
            with pytest.raises(QueueClosedError):
                await queue.take()

        run(main())

    @pytest.mark.parametrize("seed", range(10))
    def test_no_key_is_lost_or_doubled(self, seed):
        """Random adds and cancellations: never two workers on a key, and each add leads to a start."""

        async def main():
            dice = random.Random(seed)
            queue = WorkQueue(seed=seed)
            busy: set[str] = set()
            wanted: dict[str, float] = {}

            async def handle(key):
                assert key not in busy
                busy.add(key)
                wanted.pop(key, None)
                await asyncio.sleep(dice.choice([0, 0.1, 1]))
                busy.discard(key)

            workers = [asyncio.create_task(work(queue, handle)) for _ in range(3)]
            for _ in range(300):
                key = dice.choice("abcdefgh")
                queue.add(key, urgency=dice.choice(list(Urgency)), after=dice.choice([0, 0, 0.5]))
                wanted[key] = now()
                idle = asyncio.create_task(queue.take())
                if dice.random() < 0.3:
                    await asyncio.sleep(0)
                idle.cancel()
                taken = await asyncio.gather(idle, return_exceptions=True)
                if not isinstance(taken[0], BaseException):
                    queue.done(taken[0])
                    queue.add(taken[0])
                await asyncio.sleep(dice.choice([0, 0.1]))
            await asyncio.sleep(100)
            assert wanted == {}
            queue.close()
            await asyncio.gather(*workers)

        run(main())


class TestPace:
    def test_urgent_first_then_in_order(self):
        """An empty bucket serves urgent requests first, and equal ones in order."""

        async def main():
            pace = Pace(rate=1.0, burst=1)
            served = []

            async def ask(name, urgency):
                await pace.take(urgency)
                served.append((name, round(now())))

            await pace.take()
            asks = [("n1", Urgency.NORMAL), ("n2", Urgency.NORMAL), ("u1", Urgency.URGENT), ("u2", Urgency.URGENT)]
            tasks = [asyncio.create_task(ask(*each)) for each in asks]
            await asyncio.gather(*tasks)
            assert served == [("u1", 1), ("u2", 2), ("n1", 3), ("n2", 4)]

        run(main())

    def test_token_given_to_a_cancelled_waiter_is_returned(self):
        """A token that is granted to a cancelled request is available at once."""

        async def main():
            pace = Pace(rate=1.0, burst=1)
            await pace.take()
            first = asyncio.create_task(pace.take())
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_at(1.0 + 1e-6, first.cancel)  # in the moment of its grant
            await asyncio.wait([first])
            assert first.cancelled()
            await pace.take()
            assert now() == pytest.approx(1.0, abs=0.01)

        run(main())

    def test_cancelled_waiter_takes_no_token(self):
        """The turn of a cancelled request goes to the next one."""

        async def main():
            pace = Pace(rate=1.0, burst=1)
            await pace.take()
            first, second = (asyncio.create_task(pace.take()) for _ in range(2))
            await asyncio.sleep(0.5)
            first.cancel()
            await second
            assert pytest.approx(now(), abs=0.01) == 1.0

        run(main())

    def test_token_is_taken_at_once_if_nothing_waits(self):
        """No token if the bucket is empty or paused, or others with priority wait."""

        async def main():
            pace = Pace(rate=1.0, burst=2)
            assert pace.take_at_once()
            assert pace.take_at_once(Urgency.BACKGROUND)
            assert not pace.take_at_once(Urgency.URGENT)
            asked = []
            waiting = asyncio.create_task(pace.take())

            def ask():
                asked.extend(pace.take_at_once(urgency) for urgency in reversed(Urgency))

            asyncio.get_running_loop().call_at(1.0, ask)  # a token exists just before it is granted
            await waiting
            assert asked == [False, False, True]
            await asyncio.sleep(2.0)
            pace.pause(1.0)
            assert not pace.take_at_once()
            await asyncio.sleep(1.0)
            assert pace.take_at_once()

        run(main())
