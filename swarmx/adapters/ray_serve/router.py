"""`SwarmXRequestRouter`: Serve asks it for replicas, and hears the order in which to try them.

    serve.deployment(LLM).options(request_router_config=router_config(preset="late"))

Serve pickles this class by value, with everything that this module defines. Beyond Serve's documented hooks it replaces
three things of `RequestRouter` in Ray 2.60, each for a reason given there; the tests prove that they are called.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any
from weakref import WeakKeyDictionary

from swarmx.adapters.envoy.warm import warm_up
from swarmx.adapters.gateway.clock import Clock
from swarmx.adapters.predicting import Forecaster, Told, load_predictor
from swarmx.adapters.ray_serve import identity, owner
from swarmx.adapters.ray_serve.companions import companions
from swarmx.adapters.ray_serve.counters import Counters
from swarmx.adapters.ray_serve.desk import Desk
from swarmx.adapters.ray_serve.link import Link
from swarmx.adapters.ray_serve.ride import Ride
from swarmx.adapters.ray_serve.settings import RouterSettings, settings_of
from swarmx.adapters.ray_serve.states import states_of
from swarmx.adapters.ray_serve.versions import check_ray
from swarmx.types import Prediction

check_ray()

from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter  # noqa: E402
from ray.serve.request_router import (  # noqa: E402
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    ReplicaID,
    RequestRouter,
    RunningReplica,
)

log = logging.getLogger(__name__)
Ranks = list[list[RunningReplica]]
MOST_ROUTING = 10_000  # calls of one handle that wait to be bound at the same time


class SwarmXRequestRouter(LocalityMixin, MultiplexMixin, RequestRouter):  # type: ignore[misc]
    """One per handle process and deployment. `counts` has what happened, by the names in `Counters`."""

    def initialize_state(
        self, config: dict[str, Any] | str | None = None, model_dir: str | None = None, preset: str | None = None
    ) -> None:
        """Called by Serve on its routing loop. Where this fails, Serve chooses for every call, and the log says why."""
        self._counters = Counters(*self._names)
        self._contexts: dict[int, dict[str, str]] = {}
        self._routes: WeakKeyDictionary[asyncio.Task[Any], PendingRequest] = WeakKeyDictionary()
        self._desk: Desk | None = None
        self._link: Link | None = None
        self._forecaster: Forecaster | None = None
        self._beside: asyncio.Task[None] | None = None
        self._ready: asyncio.Task[None] | None = None
        try:
            self._settings = settings_of(config, model_dir, preset)
        except Exception as problem:
            log.error("swarmx does not route %s: %s", self._deployment_id, problem)
            return
        self._ready = asyncio.get_running_loop().create_task(self._start(self._settings))

    @property
    def _names(self) -> tuple[str, str]:
        return self._deployment_id.app_name, self._deployment_id.name

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._counters.counts)

    @property
    def owner_round_trips_s(self) -> list[float]:
        """The latest messages to the queue owner and back."""
        return [] if self._link is None else list(self._link.round_trips_s)

    # ---- Serve's hooks ----

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Ranks:
        """Ranks of one replica each, best first, so that Serve does not choose within a rank."""
        if pending_request is None or not candidate_replicas:
            return await self._serves_own(candidate_replicas, pending_request)
        if (task := asyncio.current_task()) is not None:
            self._routes[task] = pending_request
        pending_request.routing_context.should_backoff = True  # when all ranks are full, Serve asks again after a pause
        try:
            names = await self._ranked(pending_request, candidate_replicas)
        except asyncio.CancelledError:
            self._withdraw(pending_request)
            raise
        except Exception as problem:  # a request is routed whatever fails here
            self._counters.add("fallbacks", f"{type(problem).__name__}: {problem}"[:300])
            names = None
        if names is None:
            return await self._serves_own(candidate_replicas, pending_request)
        by_name = {r.replica_id.unique_id: r for r in candidate_replicas}
        return [[by_name[name]] for name in names if name in by_name]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        if self._desk is None:
            return
        try:
            ride = self._desk.rides.get(id(pending_request))
            chosen = "" if ride is None else ride.replica
            self._desk.routed(pending_request, replica_id.unique_id)
            if ride is None:
                return
            if ride.shadow:
                self._counters.add("shadow_same" if chosen == replica_id.unique_id else "shadow_other")
            if self._link is not None and not ride.granted and id(pending_request) in self._desk.rides:
                self._link.held(ride)
        except Exception as problem:
            self._counters.add("fallbacks", f"routed: {problem}"[:300])

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        if self._desk is None:
            return
        try:
            self._desk.completed(replica_id.unique_id, internal_request_id)
        except Exception as problem:
            self._counters.add("fallbacks", f"completed: {problem}"[:300])

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """New or gone replicas, and new statistics of those there are."""
        super().update_replicas(replicas)
        self._replicas_changed()

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        self._replicas_changed()

    def on_replica_actor_unavailable(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_unavailable(replica_id)
        self._counters.add("unavailable")

    # ---- what is replaced of Serve's own ----

    @property
    def max_num_routing_tasks(self) -> int:
        """Serve runs two routing tasks per replica and handle, at most 50; each held call needs one of its own."""
        return MOST_ROUTING

    async def _choose_replica_for_request(
        self, pending_request: PendingRequest, *, is_retry: bool = False
    ) -> RunningReplica:
        """Runs in the caller's context, unlike `choose_replicas`: the place to see `swarmx.client.workflow`."""
        if not is_retry and (context := identity.context_headers()):
            self._contexts[id(pending_request)] = context
        try:
            return await super()._choose_replica_for_request(pending_request, is_retry=is_retry)
        finally:
            self._contexts.pop(id(pending_request), None)

    def _fulfill_next_pending_request(self, replica: RunningReplica, request_metadata: Any = None) -> None:
        """Give the replica to the request that the running task routes.

        Serve looks the request up by its internal id, which all calls made for one ingress request share: of two such
        calls at the same time one would get the other's replica, and the other would wait for ever.
        """
        task = asyncio.current_task()
        pending = None if task is None else self._routes.pop(task, None)
        if pending is None or pending.future.done():
            return
        self._record_queue_wait_time(pending)
        pending.future.set_result(replica)
        self._remove_pending_request_from_indices(pending)
        self._get_pending_request_matching_multiplexed_model_id(pending.metadata)  # forgets those that are done

    # ---- inside ----

    async def _start(self, settings: RouterSettings) -> None:
        """Compile and load, off the loop; until then Serve chooses."""
        await asyncio.to_thread(warm_up)
        if settings.predictor.kind == "local" and settings.predictor.path is not None:
            own = settings.predictor.own_process
            predictor = await asyncio.to_thread(load_predictor, settings.predictor.path, own)
            self._forecaster = Forecaster(predictor, settings.predictor.budget_s, Told.counted(self._counters.add))
        app, name, scheduler, clock = *self._names, settings.scheduler, Clock().now
        side = await asyncio.to_thread(companions, settings, app, name, clock, self._counters)
        self._desk = Desk(
            name, scheduler.preset, dict(scheduler.options), clock, self._counters, watchers=side.watchers,
            on_receipt=side.on_receipt, on_record=side.on_record, began=identity.BEGAN,
        )  # fmt: skip
        self._beside = side.begin()
        self._replicas_changed()
        if settings.asks_owner and settings.share > 0:
            self._link = self._linked(self._desk, settings)
            self._desk.on_done = self._link.done
            self._link.open()

    def _linked(self, desk: Desk, settings: RouterSettings) -> Link:
        app, name, scheduler, directory = *self._names, settings.scheduler, settings.log.directory
        options = dict(scheduler.options)
        receipts = None if directory is None else str(directory)
        return Link(
            uuid.uuid4().hex,
            lambda: owner.find_or_make(app, name, scheduler.preset, options, settings.lease_s, receipts),
            lambda: tuple(desk.lanes.cluster.states),
            lambda: (r for r in desk.rides.values() if not r.shadow),
            self._counters,
            settings.lease_s,
            settings.answer_s,
        )

    async def _ranked(self, pending: PendingRequest, candidates: list[RunningReplica]) -> list[str] | None:
        """Names of replicas in order; None where Serve shall choose."""
        if self._ready is None:
            return None
        if not self._ready.done():
            await asyncio.wait((self._ready,), timeout=self._settings.start_s)
        if self._desk is None:
            self._ready.done() and self._ready.result()  # tells what went wrong
            self._counters.add("fallbacks")
            return None
        known = id(pending) in self._desk.rides
        ride = self._desk.enter(pending, self._contexts.get(id(pending), {}))
        if known:
            self._counters.add("asked_again")
        else:
            if self._forecaster is not None:
                ride.prediction = await self._forecaster(ride.call, lambda late: self._foretold(ride, late))
            self._desk.tell("entered", ride, ride.began_s)
        if pending.metadata.multiplexed_model_id:
            return self._multiplexed(ride, candidates)
        ride.shadow = not self._is_routed(ride)
        if self._link is not None and not ride.shadow:
            return await self._granted(ride, self._link)
        names = self._desk.bind(ride)
        return None if ride.shadow else names

    def _foretold(self, ride: Ride, late: Prediction) -> None:
        """The network's word on a call that went on without it: news while the owner holds the call."""
        if self._link is not None and not ride.replica:
            ride.prediction = late
            self._link.foretold(ride.call.id, late)

    async def _granted(self, ride: Ride, link: Link) -> list[str]:
        """By the queue owner: that replica alone, since any other would be taken from somebody; else bound here."""
        assert self._desk is not None
        refused = ride.replica or ride.tried
        if not link.is_up:
            link.open()
            ride.granted = False
            return self._desk.bind(ride)
        if ride.replica:
            self._desk.release(ride)
        replica = await link.grant(ride, refused or None)
        ride.granted = bool(replica)
        if not replica:
            return self._desk.bind(ride)
        self._desk.place(ride, replica)
        return [replica]

    def _multiplexed(self, ride: Ride, candidates: list[RunningReplica]) -> list[str]:
        """Replicas that have the model loaded first, then those with the fewest models: bound at once, since the
        queue does not know what is loaded where."""
        assert self._desk is not None
        ranks = self.rank_replicas_via_multiplex(candidates, ride.pending.metadata.multiplexed_model_id)
        names: list[str] = []
        for rank in ranks:
            inside = [r.replica_id.unique_id for r in rank]
            if inside:
                names += self._desk.bind(ride, inside) if not names else self._desk.emptiest(inside)
        return names

    def _is_routed(self, ride: Ride) -> bool:
        share = self._settings.share
        return share >= 1 or (share > 0 and identity.share_of(ride.call.workflow) < share)

    async def _serves_own(self, candidates: list[RunningReplica], pending: PendingRequest | None) -> Ranks:
        ranks: Ranks = await PowerOfTwoChoicesRequestRouter.choose_replicas(self, candidates, pending)
        return ranks

    def _withdraw(self, pending: PendingRequest) -> None:
        if self._desk is not None and (ride := self._desk.rides.get(id(pending))) is not None:
            self._desk.end(ride, "withdrawn")

    def _replicas_changed(self) -> None:
        if self._desk is None:
            return
        try:
            self._desk.replicas_changed(states_of(self._replicas_list, self._deployment_id.name))
            if self._link is not None:
                self._link.replicas_changed()
        except Exception as problem:
            self._counters.add("fallbacks", f"replicas: {problem}"[:300])
