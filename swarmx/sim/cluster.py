"""What a simulated cluster is made of: replicas, the service model of each, and what will go wrong when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from swarmx.engine import EngineConstants
from swarmx.types import ReplicaState

UNBOUNDED_TOKENS = 10_000_000
ONE_SECOND = EngineConstants(1.0)  # a token is a second: lengths are service times


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """One simulated replica.

    batched : continuous batching over shared compute; otherwise `slots` servers that do not slow each other
    service : constants of the service model at speed 1; where not batched, a alone is used
    speed : true relative speed; told_speed : what the scheduler is told (None: the truth)
    queue : order of the engine's own queue: by arrival there, or by arrival of the call's workflow
    block_tokens : size of a prefix-cache block; 0 turns the cache off
    accepts_per_s, accepts_burst : calls that it takes, as a token bucket; it refuses those beyond, as HTTP 429 does
    evicts : which idle blocks of the prefix cache go first: the longest idle ("lru"), or those of the session that is
        least likely to come back ("wa_lru"); holds_sessions : sessions are kept over their tool calls
    prefill_base_s : seconds, at speed 1, that a stalling prefill takes besides p per token; needs p > 0
    chunk_tokens : prompt tokens that one engine step may prefill beside the decoding calls; 0: prefill stalls decoding
    reserve_tokens : KV room beyond the prompt that admission asks for
    start_if_free : refuse a call that cannot start at once instead of queueing it
    ready_s : when it comes up; before that the scheduler does not see it
    """

    id: str
    model: str = "model"
    device: str = "default"
    batched: bool = False
    slots: int = 1
    speed: float = 1.0
    service: EngineConstants = ONE_SECOND
    context_tokens: int = 1_000_000
    kv_capacity_tokens: int = UNBOUNDED_TOKENS
    queue: Literal["fcfs", "workflow"] = "fcfs"
    block_tokens: int = 0
    prefill_base_s: float = 0.0
    chunk_tokens: int = 0
    reserve_tokens: int = 0
    start_if_free: bool = False
    told_speed: float | None = None
    ready_s: float = 0.0
    accepts_per_s: float = inf
    accepts_burst: float = 1.0
    evicts: Literal["lru", "wa_lru"] = "lru"
    holds_sessions: bool = False

    def __post_init__(self) -> None:
        if self.slots < 1 or not self.speed > 0 or self.kv_capacity_tokens < 2 or self.context_tokens < 2:
            raise ValueError(
                f"replica {self.id!r} needs slots >= 1, speed > 0 and room for 2 tokens, got slots={self.slots}, "
                f"speed={self.speed}, kv_capacity_tokens={self.kv_capacity_tokens}, "
                f"context_tokens={self.context_tokens}"
            )
        if self.prefill_base_s and (self.chunk_tokens or not self.service.p):
            raise ValueError(f"replica {self.id!r}: prefill_base_s needs p > 0 and a prefill that stalls")
        if min(self.service.as_tuple()) < 0 or self.service.a + self.service.b <= 0:
            raise ValueError(f"replica {self.id!r} needs a, b, c, p >= 0 and a + b > 0, got {self.service}")

    @property
    def longest_tokens(self) -> int:
        """Prompt and answer of a call never exceed this."""
        return min(self.context_tokens, self.kv_capacity_tokens)

    def state(
        self,
        running: int = 0,
        waiting: int = 0,
        kv_tokens: int = 0,
        draining: bool = False,
        reported_s: float | None = None,
    ) -> ReplicaState:
        told = self.speed if self.told_speed is None else self.told_speed
        return ReplicaState(
            self.id, self.model, self.device, self.slots, self.context_tokens, self.kv_capacity_tokens,
            running, waiting, kv_tokens, draining, False, told, reported_s,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """Something happens to a replica. Its calls fail at once; the pool is told of a change detect_s later.

    kind : "down": its calls end in an error and it leaves the pool; "up": it comes back, empty; "speed": its true speed
        becomes `speed` and nobody says so; "drain": it takes no new calls from now on, and says so
    """

    time_s: float
    replica: str
    kind: Literal["down", "up", "speed", "drain"]
    speed: float = 1.0
    detect_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cluster:
    replicas: tuple[ReplicaSpec, ...]
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        ids = [r.id for r in self.replicas]
        if not ids or len(set(ids)) < len(ids):
            raise ValueError("a cluster needs replicas, each with its own id")
        unknown = {f.replica for f in self.faults} - set(ids)
        if unknown:
            raise ValueError(f"faults name unknown replicas {sorted(unknown)}; the cluster has {ids}")

    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r.model for r in self.replicas))


def cluster(template: ReplicaSpec, speeds: Sequence[float]) -> Cluster:
    """Copies of one replica at the given speeds; the device kind is named after the speed."""
    width = len(str(len(speeds) - 1))
    return Cluster(
        tuple(replace(template, id=f"r{i:0{width}d}", speed=s, device=f"x{s:g}") for i, s in enumerate(speeds))
    )


def het_speeds(replicas: int = 12) -> list[float]:
    """A third each at 1.0, 0.6 and 0.35."""
    return [(1.0, 0.6, 0.35)[i * 3 // replicas] for i in range(replicas)]


def hom_speeds(replicas: int = 12) -> list[float]:
    """As many at 0.65, the same total speed as `het_speeds`."""
    return [0.65] * replicas
