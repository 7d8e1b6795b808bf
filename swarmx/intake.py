"""From a call to an entry of the queue: what is expected of it, and where it stands in the order."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from swarmx import kernel
from swarmx.guard import ObservedLengths
from swarmx.ordering import Asked, Hooks, LaneOrder, Order
from swarmx.state import ClusterState
from swarmx.trust import Trust
from swarmx.types import PRIORITIES, Call, Prediction, Priority, Source
from swarmx.waiting import Key, Lengths, Waiting, lengths_of

MAX_WORKFLOWS = 100_000  # workflows whose predicted work is remembered


def class_of(call: Call) -> int:
    """The class that the call came with, 0 the best."""
    return PRIORITIES.index(call.priority)


@dataclass
class Intake:
    """Builds queue entries.

    tier : best predictions it uses: "neural" any that it is given, "per_type" observed lengths of the call's type,
        "pool_mean" observed lengths of all calls
    own_of, sd_weight, level : what counts as the call's own output tokens: "mean", "mean_sd" or "quantile"
    classes : call type or tenant -> class, whatever the call says of itself
    """

    order: Order | LaneOrder
    tier: Source = "neural"
    own_of: Literal["mean", "mean_sd", "quantile"] = "mean"
    sd_weight: float = 0.5
    level: float = 0.95
    observed: ObservedLengths = field(default_factory=ObservedLengths)
    trust: Trust = field(default_factory=Trust)
    levels: Callable[[Call], int] = class_of
    classes: Mapping[str, Priority] = field(default_factory=dict)
    tiers: Counter[Source] = field(default_factory=Counter)  # entries by who said what is expected of them
    _works: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _turns: int = 0
    _last: tuple[Prediction, int | None, Lengths] | None = None

    def __post_init__(self) -> None:
        order = Hooks.of(self.order)
        self._stale = order.stale
        self.hooks = replace(order, stale=self._asked_again)

    def classed(self, call: Call) -> Call:
        """The call in the class that its type, else its tenant, was given."""
        given = self.classes.get(call.type or "") or self.classes.get(call.tenant)
        return call if given is None or given == call.priority else replace(call, priority=given)

    def entry(
        self, call: Call, prediction: Prediction | None, since_s: float, cluster: ClusterState, batched: bool
    ) -> Waiting:
        """The entry of a call that waits since then; the order is told of it and asked for its key.

        A prediction counts while its predictor has not been worse than the lengths observed, see `swarmx.trust`.
        """
        self._catch_up(cluster)
        plain = self._plain(call.type)
        if prediction is None or self.tier != "neural":
            prediction = plain
        else:
            prediction = self.trust.asked(call.id, prediction, plain, call.max_tokens, call.type)
        self.tiers[prediction.source] += 1
        lengths = self._lengths(prediction, call.max_tokens)
        waiting = Waiting(call, prediction, lengths, (0, 0.0, 0.0, ""), since_s)
        asked = self._asked(waiting, cluster, batched, since_s)
        self.hooks.arrived(asked)
        waiting.key = self._key(asked)
        waiting.level, waiting.order_key = waiting.key[0], waiting.key[1]
        return waiting

    def ended(self, call: Call, output_tokens: float | None) -> None:
        """A call ended with so many output tokens, or in a way that tells nothing (None)."""
        if output_tokens is None:
            self.trust.forget(call.id)
            return
        self.trust.ended(call.id, output_tokens)
        self.observed.observe(call.type, output_tokens)

    def again(self, waiting: Waiting, cluster: ClusterState, batched: bool, now: float) -> Key:
        """Class and key of a waiting call, asked once more; by the prediction that counts now."""
        self._catch_up(cluster)
        prediction = self.trust.current(waiting.call.id, self._plain(waiting.call.type))
        if prediction is not None and prediction is not waiting.prediction:
            waiting.prediction = prediction
            waiting.lengths = self._lengths(prediction, waiting.call.max_tokens)
        return self._key(self._asked(waiting, cluster, batched, now))

    def _plain(self, call_type: str | None) -> Prediction:
        return self.observed.expect(None if self.tier == "pool_mean" else call_type)

    def _asked_again(self) -> Iterable[str]:
        """Calls whose key the order wants anew, and all that were asked about when the predictor's word has turned."""
        stale = self._stale()
        return stale if self.trust.switches == self._turns else [*stale, *self.trust.open()]

    def _catch_up(self, cluster: ClusterState) -> None:
        """The predictor's word has turned: calls in flight and workflows are looked at by the one that counts now."""
        if self.trust.switches == self._turns:
            return
        self._turns = self.trust.switches
        self._works.clear()
        table = cluster.flight_table()
        for call_id, asked in self.trust.open().items():
            prediction = self.trust.current(call_id, self._plain(asked.call_type))
            if prediction is not None and (flight := cluster.flights.get(call_id)) is not None:
                lengths = self._lengths(prediction, asked.max_tokens)
                table[flight.row, kernel.F_EXCESS] = lengths.excess
                table[flight.row, kernel.FLIGHT_COLUMNS :] = lengths.grid

    def _key(self, asked: Asked) -> Key:
        call = asked.call
        return self.levels(call), self.order.key(asked), call.arrival_s, call.id

    def _asked(self, waiting: Waiting, cluster: ClusterState, batched: bool, now: float) -> Asked:
        call, token_s, prefill_s = waiting.call, 1.0, 0.0
        work_s = self._workflow_work(call, waiting.prediction, cluster)
        if cluster.is_fitted:
            a, b, p = kernel.mean_constants(cluster.replicas)
            token_s, prefill_s = a + b, p
        return Asked(
            call, waiting.prediction, waiting.lengths, work_s, token_s, prefill_s, batched, now, waiting.attained
        )

    def _lengths(self, prediction: Prediction, max_tokens: int | None) -> Lengths:
        last = self._last  # fallback predictions come again and again
        if last is None or last[0] is not prediction or last[1] != max_tokens:
            lengths = lengths_of(prediction.tokens, max_tokens, self.own_of, self.sd_weight, self.level)
            self._last = last = (prediction, max_tokens, lengths)
        return last[2]

    def _workflow_work(self, call: Call, prediction: Prediction, cluster: ClusterState) -> float:
        """Predicted seconds of the call's workflow, fixed when its first call is seen; 0 while nothing is known."""
        known = self._works.get(call.workflow)
        if known is not None:
            return known
        known = 0.0
        if call.workflow_work is not None:
            known = call.workflow_work
        elif prediction.remaining_tokens is not None and cluster.is_fitted:
            tokens = float(prediction.tokens.mean() + prediction.remaining_tokens.mean())
            a, b, _ = kernel.mean_constants(cluster.replicas)
            known = tokens * (a + b)
        self._works[call.workflow] = known
        if len(self._works) > MAX_WORKFLOWS:
            self._works.popitem(last=False)
        return known
