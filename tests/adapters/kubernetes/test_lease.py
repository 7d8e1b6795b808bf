"""Leader election: one holder, hand-over, conflicts, an API server that is away."""

from __future__ import annotations

import asyncio
import logging

import pytest
from k8s_rig import Asked, cluster, status
from patience import PATIENCE_S, until

from swarmx.adapters.kubernetes.client import Api
from swarmx.adapters.kubernetes.lease import Lease

PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _lease(api: Api, me: str, clock: Clock) -> Lease:
    return Lease(api, "default", "picker", me, duration_s=15.0, renew_s=5.0, clock=clock)


def test_the_first_holds_it_and_the_second_takes_over_when_it_is_silent() -> None:
    async def run() -> None:
        async with cluster() as (_, api, _line):
            clock = Clock()
            a, b = _lease(api, "a", clock), _lease(api, "b", clock)
            assert await a.attempt() and not await b.attempt()
            clock.now += 14
            assert not await b.attempt()  # b saw a alive 14 s ago
            assert await a.attempt()  # renewed: b must wait anew
            clock.now += 14
            assert not await b.attempt()
            clock.now += 14
            assert not await b.attempt()
            clock.now += 2
            assert await b.attempt()
            spec = (await api.get(f"{PATH}/picker"))["spec"]
            assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)
            assert not await a.attempt()

    asyncio.run(run())


def test_a_released_lease_is_taken_at_once() -> None:
    async def run() -> None:
        async with cluster() as (_, api, _line):
            clock = Clock()
            a, b = _lease(api, "a", clock), _lease(api, "b", clock)
            a.held = await a.attempt()
            await a.release()
            assert await b.attempt()
            assert not await a.attempt()

    asyncio.run(run())


def test_a_renewal_that_comes_between_does_not_keep_a_lease_that_is_released() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            clock = Clock()
            a, b = _lease(api, "a", clock), _lease(api, "b", clock)
            a.held = await a.attempt()
            conflicts = [status(409, "Conflict")]
            line.disturb = lambda r: conflicts.pop() if r.method == "PATCH" and conflicts else None
            await a.release()
            assert not conflicts and await b.attempt()

    asyncio.run(run())


def test_a_lease_that_comes_after_its_release_is_given_back() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            clock = Clock()
            a, b = Lease(api, "default", "picker", "a", duration_s=1000.0, renew_s=400.0), _lease(api, "b", clock)
            changes: list[bool] = []
            released: list[asyncio.Task[None]] = []

            def release(request: Asked) -> None:
                if request.method == "POST":
                    released.append(asyncio.create_task(a.release()))

            line.disturb = release
            task = asyncio.create_task(a.run(changes.append))
            await until(lambda: any(b'"holderIdentity": ""' in asked.content for asked in line.seen))
            await until(lambda: released[0].done())
            async with asyncio.timeout(PATIENCE_S):
                while not await b.attempt():
                    await asyncio.sleep(0.01)
            assert changes == [] and not a.held
            task.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_conflict_means_that_another_was_quicker(method: str) -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            lease = _lease(api, "a", Clock())
            if method == "PATCH":
                assert await lease.attempt()
            line.disturb = lambda r: status(409, "Conflict") if r.method == method else None
            assert not await lease.attempt()
            line.disturb = lambda r: None
            assert await lease.attempt()

    asyncio.run(run())


def test_writes_carry_the_version_that_was_read() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            lease = _lease(api, "a", Clock())
            await lease.attempt()
            await api.patch(f"{PATH}/picker", {"metadata": {"resourceVersion": "77"}})
            await lease.attempt()
            assert b'"resourceVersion": "77"' in line.seen[-1].content

    asyncio.run(run())


@pytest.mark.parametrize("hangs", [False, True], ids=["resets", "hangs"])
def test_a_holder_cut_off_from_the_server_steps_down_before_others_may_take_over(
    hangs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    async def run() -> None:
        async with cluster() as (_, api, line):
            changes: list[tuple[bool, float]] = []
            lease = Lease(api, "default", "picker", "a", duration_s=1.5, renew_s=0.7)
            loop = asyncio.get_running_loop()
            task = asyncio.create_task(lease.run(lambda held: changes.append((held, loop.time()))))
            await until(lambda: [held for held, _ in changes] == [True])
            cut = loop.time()

            def gone(request: Asked) -> None:
                raise ConnectionResetError

            line.disturb, line.hangs = gone, hangs
            await until(lambda: [held for held, _ in changes] == [True, False])
            assert changes[-1][1] - cut < 1.4
            line.disturb, line.hangs = lambda r: None, False
            await until(lambda: lease.held)
            task.cancel()

    asyncio.run(run())
