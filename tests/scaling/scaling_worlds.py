"""Small worlds that the tests of scaling share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from swarmx.scaler import Scaler
from swarmx.scaling import SCALERS, Bounds, PoolSample, ReplicaView, Scale, scaling_preset, within

SERVICE_S = 10.0
PERIOD_S = 5.0
TRIED = [name for name in SCALERS if name not in ("fixed", "clairvoyant")]  # those that react to load by themselves


def scaler(name: str, bounds: Bounds | None = None) -> Scaler:
    """A scaler of that name with its own bounds, one to fifty replicas."""
    policy, own = scaling_preset(name)
    return Scaler(name, policy, bounds or within(name, minimum=1, maximum=50) or own)


class Pool:
    """A pool in which `load` slots' worth of calls are offered for ever; replicas obey the scaler at once.

    What a policy may look at follows from the load as in a fluid: what does not find a slot waits.
    """

    def __init__(self, replicas: int = 2) -> None:
        self.ids = [f"r{i}" for i in range(replicas)]
        self.made = replicas
        self.arrived = self.kept = 0.0
        self.waiting = 0.0

    def sample(self, load: float, now: float, period_s: float = PERIOD_S) -> PoolSample:
        n = len(self.ids)
        running = min(load + self.waiting, n)
        self.waiting = min(max(self.waiting + (load - n) * period_s / SERVICE_S, 0.0), 200.0)
        rate = load / SERVICE_S
        self.arrived += rate * period_s
        ratio = (SERVICE_S + self.waiting * SERVICE_S / max(n, 1)) / (2 * SERVICE_S) if load else None
        if ratio is not None and n > load:
            ratio = 0.5 * (0.6 + 0.4 * load / n)  # an idle engine answers a little faster
        self.kept += rate * period_s * (ratio is not None and ratio <= 1)
        views = tuple(ReplicaView(i, in_flight=int(running / max(n, 1) + 0.999), latency_ratio=ratio) for i in self.ids)
        seen = self.arrived
        return PoolSample("m", now, views, self.waiting, running, seen, seen, SERVICE_S, ratio, seen, self.kept)

    def obey(self, scale: Scale) -> None:
        gone = {*scale.drain, *scale.cancel}
        self.ids = [i for i in self.ids if i not in gone]
        for _ in range(sum(scale.add.values())):
            self.ids.append(f"r{self.made}")
            self.made += 1


def course(
    scaler: Scaler, load: Callable[[float], float], span_s: float, pool: Pool | None = None, start_s: float = 0.0
) -> Iterator[tuple[float, int]]:
    """(time, target) of every step of the scaler on a pool under this load."""
    pool = Pool() if pool is None else pool
    now = start_s
    while now < start_s + span_s:
        for scale in scaler.step([pool.sample(load(now), now)]):
            pool.obey(scale)
            yield now, scale.target
        now += PERIOD_S
