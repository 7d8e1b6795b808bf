"""Who got how much: the accounts of tenants and agents, Jain's index, and delay behind ideal fair sharing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

MAX_ACCOUNTS = 10_000


@dataclass(slots=True)
class Account:
    """Totals of one tenant or agent. Times in seconds; tokens: prompt + output of calls that ended, in any way."""

    arrived: int = 0
    dispatched: int = 0
    finished: int = 0
    rejected: int = 0
    interrupted: int = 0
    tokens: float = 0.0
    wait_s: float = 0.0
    worst_wait_s: float = 0.0
    turnaround_s: float = 0.0

    def dispatch(self, wait_s: float) -> None:
        """A call was started after waiting so long since it began to wait."""
        self.dispatched += 1
        self.wait_s += wait_s
        self.worst_wait_s = max(self.worst_wait_s, wait_s)

    def finish(self, tokens: float, turnaround_s: float) -> None:
        self.finished += 1
        self.tokens += tokens
        self.turnaround_s += turnaround_s

    @property
    def mean_wait_s(self) -> float:
        return self.wait_s / self.dispatched if self.dispatched else 0.0


class Ledger:
    """Accounts by name; beyond `limit` the longest unused is forgotten and counted in `forgotten`."""

    def __init__(self, limit: int = MAX_ACCOUNTS) -> None:
        self.limit = limit
        self.forgotten = 0
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    def __getitem__(self, name: str) -> Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = Account()
            if len(self._accounts) > self.limit:
                self._accounts.popitem(last=False)
                self.forgotten += 1
        else:
            self._accounts.move_to_end(name)
        return account

    def accounts(self) -> Mapping[str, Account]:
        return self._accounts

    def shares(self, weights: Mapping[str, float] | None = None) -> dict[str, float]:
        """Share of all tokens over share of all weights; 1 is exactly fair. Weights default to 1."""
        weights = weights or {}
        total = sum(a.tokens for a in self._accounts.values())
        weight = sum(weights.get(name, 1.0) for name in self._accounts)
        return {
            name: (a.tokens / total) / (weights.get(name, 1.0) / weight) if total else 1.0
            for name, a in self._accounts.items()
        }

    def jain(self, weights: Mapping[str, float] | None = None) -> float:
        """Jain's index of tokens per weight."""
        weights = weights or {}
        return jain([a.tokens / weights.get(name, 1.0) for name, a in self._accounts.items()])


def jain(values: Iterable[float]) -> float:
    """(sum x)² / (n · sum x²): 1 when all are equal, 1/n when one has all; 1 for nothing at all.

    Jain, Chiu and Hawe (1984).
    """
    found = list(values)
    square = sum(x * x for x in found)
    return sum(found) ** 2 / (len(found) * square) if square else 1.0


@dataclass(frozen=True, slots=True)
class Demand:
    """An agent's need of a shared resource: cost in units of work, wanted from arrival_s on."""

    arrival_s: float
    cost: float
    weight: float = 1.0


def ideal_finish_s(demands: Sequence[Demand], capacity: float) -> list[float]:
    """When each would end if all unfinished ones shared the capacity (units a second) in proportion to their weights.

    Generalised processor sharing by its virtual clock; demands in any order.
    """
    if not capacity > 0:
        raise ValueError(f"capacity must be positive, got {capacity}")
    out = [0.0] * len(demands)
    active: list[tuple[float, int]] = []
    now = virtual = weight = 0.0
    for index in sorted(range(len(demands)), key=lambda i: demands[i].arrival_s):
        demand = demands[index]
        now, virtual, weight = _serve(active, demands, out, capacity, (now, virtual, weight), demand.arrival_s)
        heappush(active, (virtual + demand.cost / demand.weight, index))
        weight += demand.weight
    _serve(active, demands, out, capacity, (now, virtual, weight), float("inf"))
    return out


def _serve(
    active: list[tuple[float, int]],
    demands: Sequence[Demand],
    out: list[float],
    capacity: float,
    clock: tuple[float, float, float],
    until_s: float,
) -> tuple[float, float, float]:
    """Share the capacity until then; (now, virtual time, weight of those that still want it)."""
    now, virtual, weight = clock
    while active:
        end = now + (active[0][0] - virtual) * weight / capacity
        if end > until_s:
            return until_s, virtual + (until_s - now) * capacity / weight, weight
        virtual, index = heappop(active)
        now = out[index] = end
        weight = weight - demands[index].weight if active else 0.0
    return max(now, until_s), virtual, weight


def worst_delay_s(demands: Sequence[Demand], finished_s: Sequence[float], capacity: float) -> float:
    """Largest time by which one ended after its ideal finish; negative when all ended before theirs."""
    ideal = ideal_finish_s(demands, capacity)
    return max(end - fair for end, fair in zip(finished_s, ideal, strict=True))
