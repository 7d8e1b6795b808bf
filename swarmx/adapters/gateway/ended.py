"""What is done with a call that is over: counted, compared with what was predicted, and recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from swarmx.adapters.adaptation import Adapting
from swarmx.adapters.gateway.metrics import COVERED_LEVELS, Metrics
from swarmx.adapters.gateway.records import RecordLog
from swarmx.adapters.gateway.ticket import Ticket
from swarmx.adapters.gateway.tracing import Tracing
from swarmx.types import CallRecord

MAX_TENANTS = 1000  # tenants with metrics of their own; the rest are counted together


class Ended:
    """Takes every finished call.

    latest : the last ones, for the status page
    """

    def __init__(
        self,
        metrics: Metrics,
        records: RecordLog | None,
        prompt: str,
        latest: deque[Mapping[str, Any]],
        tracing: Tracing | None = None,
        adapting: Adapting | None = None,
    ) -> None:
        self.metrics = metrics
        self.records = records
        self.prompt = prompt
        self.latest = latest
        self.tracing = tracing
        self.adapting = adapting
        self._tokens: dict[str, int] = {}

    def add(self, ticket: Ticket, record: CallRecord) -> None:
        assert record.finished_s is not None
        metrics, pool, tenant = self.metrics, record.model, self._tenant(record.tenant)
        metrics.ended.labels(pool, tenant, record.status).inc()
        metrics.tokens.labels(pool, tenant, "prompt").inc(record.prompt_tokens)
        metrics.tokens.labels(pool, tenant, "output").inc(record.output_tokens)
        self._tokens[tenant] = self._tokens.get(tenant, 0) + record.output_tokens
        if record.status == "ok":
            metrics.latency.labels(pool).observe(record.finished_s - record.arrival_s)
            self._compare(ticket, record)
        self.latest.append(_row(ticket, record))
        if self.adapting is not None:
            self.adapting.finished(record)
        if self.tracing is not None:
            self.tracing.add(record, ticket.traceparent)
        if self.records is not None:
            self.records.add(ticket.with_prompt(record, self.prompt))

    def jain(self) -> float:
        """Jain's index of output tokens over tenants: 1 is even, 1/n is one tenant alone."""
        values = list(self._tokens.values())
        squares = sum(v * v for v in values)
        return 1.0 if squares == 0 else sum(values) ** 2 / (len(values) * squares)

    def _tenant(self, tenant: str) -> str:
        return tenant if tenant in self._tokens or len(self._tokens) < MAX_TENANTS else "(others)"

    def _compare(self, ticket: Ticket, record: CallRecord) -> None:
        if ticket.prediction is None:
            return
        grid, source = ticket.prediction.tokens, ticket.prediction.source
        self.metrics.predicted.labels(record.model, source).inc()
        for level in COVERED_LEVELS:
            if record.output_tokens <= float(grid.at(level)):
                self.metrics.covered.labels(record.model, source, str(level)).inc()


def _row(ticket: Ticket, record: CallRecord) -> dict[str, Any]:
    """One line of the status page."""
    grid = None if ticket.prediction is None else ticket.prediction.tokens
    assert record.finished_s is not None
    return {
        "call_id": record.call_id,
        "pool": record.model,
        "tenant": record.tenant,
        "status": record.status,
        "replica": record.replica,
        "tried": list(ticket.tried),
        "latency_s": record.finished_s - record.arrival_s,
        "wait_s": None if record.dispatched_s is None else record.dispatched_s - record.arrival_s,
        "output_tokens": record.output_tokens,
        "predicted": None if grid is None else [float(grid.at(q)) for q in (0.5, 0.95)],
    }
