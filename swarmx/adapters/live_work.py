"""What live workflows will still ask of each model: kept where calls are seen, published as JSON for a scaler.

Whoever routes calls tells a `LiveDemand` of each one and puts its `page` where a scaler looks (`swarmx.adapters.books`
adds them up). Ids, tenants and prompts stay inside; what leaves is slot-seconds per model, term and window.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from swarmx.adapters.settings import Count, Positive, Settings
from swarmx.errors import BadInput
from swarmx.scaling.foretell import Foreteller
from swarmx.scaling.live import LiveWork
from swarmx.scaling.profiles import fit_profiles, windows_to
from swarmx.types import Call, CallRecord, Prediction

log = logging.getLogger(__name__)
MAX_WORKFLOWS = 100_000  # whose beginning is remembered
AT_ONCE_S = 1.0  # a call that arrives this long after its workflow began does not begin it
TELL_S = 1.0  # time between two rounds of learned forecasts


class DemandSettings(Settings):
    """What live workflows will still ask for, for a scaler. log : calls of all models, where types' averages come from

    horizon_s : how far ahead; scalers look 1.5 cold starts ahead
    calls : of the log, the latest so many are learned from
    rate_s : arrivals of the last so many seconds give the arrival rate
    learned : use the predictor's forecast of each workflow beside the averages; needs a predictor of kind "local"
    """

    log: Path
    horizon_s: Positive = 90.0
    calls: Count = 20_000
    rate_s: Positive = 60.0
    learned: bool = False


class LiveDemand:
    """The book of live calls of one process. Everything happens on the thread that tells it of calls.

    foreteller : None for type averages alone
    """

    def __init__(self, live: LiveWork, foreteller: Foreteller | None = None) -> None:
        self.live, self.foreteller = live, foreteller
        self.book = secrets.token_hex(8)
        self._begun: OrderedDict[str, None] = OrderedDict()

    def arrived(self, call: Call, expected: Prediction | None, now: float) -> None:
        """A call has been accepted and waits."""
        self.live.arrive(call.id, call.model, call.type, now, is_first=self._begins(call), workflow=call.workflow)
        if self.foreteller is not None:
            self.foreteller.arrived(call, expected, now)

    def started(self, call_id: str, now: float) -> None:
        """It has been sent to a replica."""
        self.live.started(call_id, now)

    def waits(self, call_id: str) -> None:
        """It is queued again."""
        self.live.waits(call_id)

    def ended(self, record: CallRecord, now: float) -> None:
        """It is over, in any way."""
        self.live.ended(record.call_id)
        if self.foreteller is not None:
            self.foreteller.ended(record, now)

    def page(self, now: float) -> dict[str, Any]:
        """What `demands_of` reads. book : this process, so that nobody counts it twice"""
        demands = self.live.demands(now)
        edges = self.live.profiles.edges_s.tolist()
        models = {
            model: {term: [demand.mean[term].tolist(), demand.variance[term].tolist()] for term in demand.mean}
            for model, demand in demands.items()
        }
        return {"book": self.book, "live_calls": len(self.live), "edges_s": edges, "models": models}

    async def run(self, now: Callable[[], float]) -> None:
        """Forecast the workflows that changed, off the loop; never returns. Nothing to do without a foreteller."""
        while self.foreteller is not None:
            await asyncio.sleep(TELL_S)
            names, states = self.foreteller.asked(now())
            if names:
                outlooks = await asyncio.to_thread(self.foreteller.forecaster.predict_all, states)
                self.foreteller.told(self.live, names, outlooks)

    def _begins(self, call: Call) -> bool:
        """Whether it is the first call of its workflow, as far as can be told here."""
        known = call.workflow in self._begun
        self._begun[call.workflow] = None
        if len(self._begun) > MAX_WORKFLOWS:
            self._begun.popitem(last=False)
        return not known and call.parent_id is None and call.arrival_s - call.workflow_start_s <= AT_ONCE_S


def live_demand(settings: DemandSettings, models: Sequence[str], predictor: Path | None = None) -> LiveDemand:
    """Learned from the log. models : that calls will be of; predictor : model directory, where `learned` is set

    Raises BadInput when the log cannot be read, has no call of these models, or the directory has no such forecast.
    """
    from swarmx.logs.many import read_logs

    records = sorted(read_logs(settings.log), key=lambda r: r.arrival_s)[-settings.calls :]
    try:
        profiles = fit_profiles(with_parents(records), windows_to(settings.horizon_s))
    except ValueError as problem:
        raise BadInput(f"demand.log {settings.log}: {problem}; give a log that calls were recorded in") from None
    if not set(models) & set(profiles.models):
        known, asked = ", ".join(profiles.models), ", ".join(models)
        raise BadInput(f"demand.log {settings.log} knows the models {known}; none of {asked} is among them")
    if unknown := sorted(set(models) - set(profiles.models)):
        log.warning("no demand is foretold for %s: %s has none of their calls", ", ".join(unknown), settings.log)
    live = LiveWork(profiles, settings.rate_s)
    return LiveDemand(live, _foreteller(records, predictor) if settings.learned else None)


def with_parents(records: Sequence[CallRecord]) -> list[CallRecord]:
    """The records; in workflows that name no parent, each call's is the last of those that it may have waited for."""
    from swarmx.logs.workflows import parents_from_time

    flows: dict[str, list[CallRecord]] = defaultdict(list)
    for record in records:
        flows[record.workflow_id or record.call_id].append(record)
    out: list[CallRecord] = []
    for group in flows.values():
        if len(group) == 1 or any(record.parent_id for record in group):
            out += group
            continue
        end = {record.call_id: record.finished_s or 0.0 for record in group}
        before = parents_from_time(group)
        out += [replace(r, parent_id=max(before[r.call_id], key=end.__getitem__, default=None)) for r in group]
    return out


def _foreteller(records: Sequence[CallRecord], predictor: Path | None) -> Foreteller:
    from swarmx.predict.downstream import DownstreamPredictor

    if predictor is None:
        raise BadInput("demand.learned: needs a predictor of kind 'local', whose directory holds the forecast")
    return Foreteller(DownstreamPredictor.load(predictor), token_seconds(records), at_events=True)


def token_seconds(records: Sequence[CallRecord]) -> Mapping[str, float]:
    """Model -> slot-seconds of one output token, over the calls that ended well."""
    seconds: dict[str, float] = defaultdict(float)
    tokens: dict[str, int] = defaultdict(int)
    for r in records:
        if r.status == "ok" and r.dispatched_s is not None and r.finished_s is not None:
            seconds[r.model] += r.finished_s - r.dispatched_s
            tokens[r.model] += r.output_tokens
    return {model: seconds[model] / count for model, count in tokens.items() if count}
