"""Virtual finish under ideal fair sharing of memory over time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Literal

from swarmx.ordering.contract import Asked
from swarmx.waiting import Waiting

MAX_AGENTS = 100_000
Cost = Literal["memory", "vtc"]


@dataclass(slots=True)
class _Agent:
    began: float  # virtual time of its arrival
    cost: float
    weight: float
    guessed: bool  # from fallback lengths: a real prediction may still replace it
    calls: float  # that it is still expected to make end
    counted: float = 0.0  # of its cost, what has moved the clock
    inside: int = 0  # its calls that wait or run

    @property
    def finish(self) -> float:
        return self.began + self.cost / self.weight


class Justitia:
    """The agent that would end first under ideal fair sharing goes first, with all the memory.

    Cost of a call: KV tokens held times output tokens produced, p·d + d²/2, its expectation under the predicted
    distribution (E[d²] is not E[d]²). An agent's cost is fixed when its first call arrives: that call's, scaled to all
    the output tokens that the workflow still holds. F = V(arrival) + cost / weight; V advances by what the pool serves
    over the weight of agents not yet finished under ideal sharing. An arrival changes nobody else's F.

    capacity : KV token * output tokens a second that the pool serves: KV tokens held at once / seconds per output
        token. None drives V by what is really served, each call counting for the cost that was expected of it, so that
        ideal and real service do not drift apart: with a capacity guessed too large V runs ahead of the backlog and
        the order becomes first come first served. When nothing is left to serve, all agents have ended under ideal
        sharing too
    cost : "memory", or "vtc" (p + 2d; for comparison)
    weights : tenant -> weight of each of its agents, others 1

    An agent ends no later than under ideal sharing plus (largest agent's + largest call's cost) / capacity, when
    predictions hold: the bound of packetised fair queueing (Parekh and Gallager 1993). arXiv 2510.17015.
    """

    def __init__(
        self, capacity: float | None = None, cost: Cost = "memory", weights: Mapping[str, float] | None = None
    ) -> None:
        if capacity is not None and not capacity > 0:
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
        self._waiting: set[str] = set()
        self._running: dict[str, float] = {}  # call -> its cost that has been counted
        self._expected: dict[str, float] = {}  # call -> cost expected of it alone

    def arrived(self, asked: Asked) -> None:
        """Fix the agent's virtual finish at its first call, or when that call's prediction comes."""
        self.passed(asked.now)
        name = asked.call.workflow
        guessed = asked.prediction.source in ("pool_mean", "per_type")
        agent = self._agents.get(name)
        if agent is None:
            weight = self.weights.get(asked.call.tenant, 1.0)
            agent = self._agents[name] = _Agent(self._time, self._cost_of(asked), weight, guessed, 1 + _later(asked))
            if len(self._agents) > MAX_AGENTS:
                self._agents.popitem(last=False)
            self._enters(asked, agent)
        elif agent.guessed and not guessed:
            agent.cost, agent.guessed = self._cost_of(asked), False
            agent.calls = 1 + _later(asked)
            self._enters(asked, agent)
        else:
            self._enters(asked, agent)
            return
        if name not in self._served:
            self._weight += agent.weight
        self._served[name] = agent.finish, agent.weight
        heappush(self._finishes, (agent.finish, name))

    def key(self, asked: Asked) -> float:
        agent = self._agents.get(asked.call.workflow)
        return self._time if agent is None else agent.finish

    def passed(self, now: float) -> None:
        if self.capacity is not None and now > self._now:
            self._advance((now - self._now) * self.capacity)
        self._now = max(self._now, now)

    def started(self, waiting: Waiting, now: float) -> None:
        self._waiting.discard(waiting.call.id)
        self._running[waiting.call.id] = 0.0

    def progressed(self, waiting: Waiting, tokens: float, now: float) -> None:
        before = self._running.get(waiting.call.id)
        if before is not None:
            prompt = waiting.call.prompt_tokens
            done = prompt + 2 * tokens if self.cost == "vtc" else prompt * tokens + tokens**2 / 2
            self._count(waiting, before, done)

    def stopped(self, waiting: Waiting, tokens: float, now: float, over: bool) -> None:
        self.progressed(waiting, tokens, now)
        before = self._running.pop(waiting.call.id, 0.0)
        if over:
            self._count(waiting, before, inf)
            self._running.pop(waiting.call.id)
            self._leaves(waiting)
        else:
            self._expected[waiting.call.id] = self._expected.get(waiting.call.id, before) - before
            self._waiting.add(waiting.call.id)
        self._rest()

    def withdrawn(self, waiting: Waiting, now: float) -> None:
        self._waiting.discard(waiting.call.id)
        self._leaves(waiting)
        self._rest()

    def _enters(self, asked: Asked, agent: _Agent) -> None:
        if asked.call.id not in self._expected:
            agent.inside += 1
        self._waiting.add(asked.call.id)
        self._expected[asked.call.id] = self._cost_alone(asked)

    def _leaves(self, waiting: Waiting) -> None:
        """The call is over. With the last that was expected of its agent, all of the agent's cost has been served."""
        if self._expected.pop(waiting.call.id, None) is None:
            return
        agent = self._agents.get(waiting.call.workflow)
        if agent is None:
            return
        agent.inside -= 1
        agent.calls -= 1
        if self.capacity is None and not agent.inside and agent.calls < 0.5:
            self._advance(agent.cost - agent.counted)
            agent.counted = agent.cost

    def _count(self, waiting: Waiting, before: float, done: float) -> None:
        """A call counts for what was expected of it: up to that as it is produced, the rest when it ends."""
        done = max(min(done, self._expected.get(waiting.call.id, before)), before)
        self._running[waiting.call.id] = done
        agent = self._agents.get(waiting.call.workflow)
        if self.capacity is None and agent is not None:
            work = min(done - before, agent.cost - agent.counted)
            agent.counted += work
            self._advance(work)

    def _rest(self) -> None:
        """Nothing waits or runs: whatever was expected beyond that does not exist."""
        if self.capacity is None and not self._waiting and not self._running:
            self._advance(inf)

    def _cost_alone(self, asked: Asked) -> float:
        prompt, mean = asked.call.prompt_tokens, max(asked.lengths.mean, 1e-9)
        return prompt + 2 * mean if self.cost == "vtc" else prompt * mean + _spread(asked) * mean**2 / 2

    def _cost_of(self, asked: Asked) -> float:
        """Of the whole agent: this call, and the output tokens after it in calls of the predicted number."""
        prompt = asked.call.prompt_tokens
        rest, later = asked.workflow_tokens - asked.lengths.mean, _later(asked)
        if self.cost == "vtc":
            return self._cost_alone(asked) + later * prompt + 2 * rest
        return self._cost_alone(asked) + rest * prompt + _spread(asked) * rest**2 / (2 * max(later, 1e-9))

    def _advance(self, work: float) -> None:
        """So much has been served; agents whose virtual finish the clock passes are done under ideal sharing."""
        while self._finishes and work > 0:
            finish, name = self._finishes[0]
            entry = self._served.get(name)
            if entry is None or entry[0] != finish:
                heappop(self._finishes)
                continue
            needed = max(finish - self._time, 0.0) * self._weight
            if needed > work:
                self._time += work / self._weight
                return
            work -= needed
            self._time = max(self._time, finish)
            heappop(self._finishes)
            del self._served[name]
            self._weight = self._weight - entry[1] if self._served else 0.0


def _later(asked: Asked) -> float:
    """Calls that the agent is expected to make after this one."""
    rest = asked.workflow_tokens - asked.lengths.mean
    told = sum(float(count.mean()) for count in asked.prediction.downstream.values())
    return told or rest / max(asked.lengths.mean, 1e-9)


def _spread(asked: Asked) -> float:
    """E[d²] / E[d]² of the call's output."""
    return 1 + (float(asked.prediction.tokens.sd()) / max(asked.lengths.mean, 1e-9)) ** 2
