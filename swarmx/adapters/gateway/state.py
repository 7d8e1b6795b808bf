"""What the parts of a running gateway share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swarmx.adapters.gateway.clock import Clock
from swarmx.adapters.gateway.ended import Ended
from swarmx.adapters.gateway.errors import Refused
from swarmx.adapters.gateway.identity import Identity
from swarmx.adapters.gateway.metrics import Metrics
from swarmx.adapters.gateway.pool import Pool
from swarmx.adapters.gateway.receipts import ReceiptStore
from swarmx.adapters.gateway.records import RecordLog
from swarmx.adapters.gateway.settings import ServerSettings
from swarmx.adapters.journal_files import JournalFiles
from swarmx.adapters.live_work import LiveDemand
from swarmx.adapters.predicting import Forecaster
from swarmx.adapters.settings import LogSettings

MAX_WORKFLOWS = 100_000
MAX_AGE_S = 6 * 3600.0  # no workflow is believed to be older


@dataclass
class Workflows:
    """When each workflow was first seen, for clients that do not say when it began."""

    _first: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict)

    def arrival_of(self, identity: Identity, now: float) -> float | None:
        """Its arrival as the client says, else when its first call came; None for a lone call.

        A client that claims to be older than any real workflow would go first for ever: it is not believed.
        """
        if not identity.workflow_id:
            return None
        said = identity.workflow_arrival_s
        if said is not None and now - said <= MAX_AGE_S:
            return said
        key = (identity.tenant, identity.workflow_id)
        first = self._first.setdefault(key, now)
        self._first.move_to_end(key)  # those not heard of for longest are forgotten
        if len(self._first) > MAX_WORKFLOWS:
            self._first.popitem(last=False)
        return first


@dataclass
class GatewayState:
    """server, log : settings; by_model : every name that a client may ask for; draining : no new calls

    live : what live workflows will still ask for; None where no scaler is to know
    """

    server: ServerSettings
    log: LogSettings
    clock: Clock
    metrics: Metrics
    receipts: ReceiptStore
    pools: Mapping[str, Pool]
    ended: Ended
    records: RecordLog | None = None
    predictor: Forecaster | None = None
    workflows: Workflows = field(default_factory=Workflows)
    draining: bool = False
    by_model: dict[str, Pool] = field(default_factory=dict)
    journals: list[JournalFiles] = field(default_factory=list)
    live: LiveDemand | None = None

    def __post_init__(self) -> None:
        for pool in self.pools.values():
            for name in pool.settings.models or (pool.name,):
                self.by_model[name] = pool

    def pool_of(self, model: str) -> Pool:
        """Raises Refused (404) for a model that no pool serves."""
        pool = self.by_model.get(model)
        if pool is None:
            known = ", ".join(sorted(self.by_model))
            raise Refused(
                404, f"the model {model[:100]!r} does not exist; there are {known}", "model_not_found", "model"
            )
        return pool

    def latest(self) -> list[Mapping[str, Any]]:
        """The last calls that ended, newest first."""
        return list(reversed(self.ended.latest))

    @property
    def in_flight(self) -> int:
        return sum(len(pool.tickets) for pool in self.pools.values())
