"""What the loop needs of a replica; `JobReplica` and `BatchedReplica` are the two kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from swarmx.sim.cluster import ReplicaSpec
from swarmx.sim.job import Job
from swarmx.types import ReplicaState


class Replica(Protocol):
    """A replica in simulated time. Every method first brings it to `now`.

    first : jobs whose first token came since the loop last looked, with the time; ended : jobs that finished
    due_s : when something next happens inside by itself; infinite if nothing will
    """

    spec: ReplicaSpec
    index: int
    up: bool
    draining: bool
    due_s: float
    planned_s: float  # the loop's own: time of its pending wake-up
    first: list[Job]
    ended: list[Job]
    running: int
    waiting_count: int

    def submit(self, job: Job, now: float) -> bool:
        """Take a call; False if it refuses."""

    def wake(self, now: float) -> None:
        """Do what is due."""

    def remove(self, job: Job, now: float) -> bool:
        """Take a queued or running call out, its tokens so far kept in `job.produced`; False if it is not here."""

    def set_speed(self, speed: float, now: float) -> None:
        """Change the true speed."""

    def clear(self, now: float) -> list[Job]:
        """Everything inside, which is lost, in order of arrival here."""

    def progress(self, now: float) -> Iterator[tuple[Job, float]]:
        """Running calls past their first token, and the tokens that each has produced."""

    def kv_tokens(self, now: float) -> int:
        """KV tokens held by running calls."""

    def state(self, now: float) -> ReplicaState:
        """What it reports of itself."""
