"""Virtual finish under ideal fair sharing of memory over time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

from swarmx.ordering.contract import Asked

MAX_AGENTS = 100_000
Cost = Literal["memory", "vtc"]


@dataclass(slots=True)
class _Agent:
    began: float  # virtual time of its arrival
    cost: float
    weight: float
    guessed: bool  # from fallback lengths: a real prediction may still replace it

    @property
    def finish(self) -> float:
        return self.began + self.cost / self.weight


class Justitia:
    """The agent that would end first under ideal fair sharing goes first, with all the memory.

    Cost of a call: KV tokens held times output tokens produced, p·d + d²/2, its expectation under the predicted
    distribution (E[d²] is not E[d]²). An agent's cost is fixed when its first call arrives: that call's, scaled to all
    the output tokens that the workflow still holds. F = V(arrival) + cost / weight; V advances at capacity / (weight of
    agents not yet finished under ideal sharing). An arrival changes nobody else's F.

    capacity : KV token * output tokens a second that the pool serves: KV tokens held at once / seconds per output token
    cost : "memory", or "vtc" (p + 2d; for comparison)
    weights : tenant -> weight of each of its agents, others 1

    An agent ends no later than under ideal sharing plus (largest agent's + largest call's cost) / capacity, when
    predictions hold: the bound of packetised fair queueing (Parekh and Gallager 1993). arXiv 2510.17015.
    """

    def __init__(
        self, capacity: float = 1e7, cost: Cost = "memory", weights: Mapping[str, float] | None = None
    ) -> None:
        if not capacity > 0:
            raise ValueError(f"capacity must be positive KV token * tokens a second, got {capacity}")
        if cost not in ("memory", "vtc"):
            raise ValueError(f"unknown cost {cost!r}; choose memory or vtc")
        self.capacity = capacity
        self.cost = cost
        self.weights = dict(weights or {})
        self._agents: OrderedDict[str, _Agent] = OrderedDict()
        self._finishes: list[tuple[float, str]] = []  # heap of agents served under ideal sharing; stale ones too
        self._served: dict[str, tuple[float, float]] = {}  # those agents -> their entry's finish, weight
        self._weight = 0.0
        self._time = 0.0
        self._now = 0.0

    def arrived(self, asked: Asked) -> None:
        """Fix the agent's virtual finish at its first call, or when that call's prediction comes."""
        self._advance(asked.now)
        name = asked.call.workflow
        guessed = asked.prediction.source in ("pool_mean", "per_type")
        agent = self._agents.get(name)
        if agent is None:
            weight = self.weights.get(asked.call.tenant, 1.0)
            agent = self._agents[name] = _Agent(self._time, self._cost_of(asked), weight, guessed)
            if len(self._agents) > MAX_AGENTS:
                self._agents.popitem(last=False)
        elif agent.guessed and not guessed:
            agent.cost, agent.guessed = self._cost_of(asked), False
        else:
            return
        if name not in self._served:
            self._weight += agent.weight
        self._served[name] = agent.finish, agent.weight
        heappush(self._finishes, (agent.finish, name))

    def key(self, asked: Asked) -> float:
        agent = self._agents.get(asked.call.workflow)
        return self._time if agent is None else agent.finish

    def passed(self, now: float) -> None:
        self._advance(now)

    def _cost_of(self, asked: Asked) -> float:
        """Of the whole agent: this call, and the output tokens after it in calls of the predicted number."""
        prompt, mean = asked.call.prompt_tokens, max(asked.lengths.mean, 1e-9)
        spread = 1 + (float(asked.prediction.tokens.sd()) / mean) ** 2  # E[d²] / E[d]²
        rest = asked.workflow_tokens - asked.lengths.mean
        later = sum(float(count.mean()) for count in asked.prediction.downstream.values()) or rest / mean
        if self.cost == "vtc":
            return prompt + 2 * mean + later * prompt + 2 * rest
        return prompt * mean + spread * mean**2 / 2 + rest * prompt + spread * rest**2 / (2 * max(later, 1e-9))

    def _advance(self, now: float) -> None:
        """Bring the virtual clock to `now`; agents whose virtual finish it passes are done under ideal sharing."""
        left = now - self._now
        self._now = max(self._now, now)
        while self._finishes and left > 0:
            finish, name = self._finishes[0]
            entry = self._served.get(name)
            if entry is None or entry[0] != finish:
                heappop(self._finishes)
                continue
            needed = max(finish - self._time, 0.0) * self._weight / self.capacity
            if needed > left:
                self._time += left * self.capacity / self._weight
                return
            left -= needed
            self._time = max(self._time, finish)
            heappop(self._finishes)
            del self._served[name]
            self._weight = self._weight - entry[1] if self._served else 0.0
