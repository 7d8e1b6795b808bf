"""Who got how much in a simulated run: the accounts of tenants, their shares, and delay behind ideal sharing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx.fairness import Demand, ideal_finish_s, jain
from swarmx.sim.results import CallTable

MOST_TENANTS = 12  # more are summed up: a report is read by people
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TenantAccount:
    """One tenant of a run. Times in seconds; tokens: prompt and output of calls that ended well.

    share : of all tokens, over its share of all weights (1 is fair); worst_delay_s : by which one of its workflows
        ended after its finish under ideal sharing of what the run served, by tokens; 0 when none did
    agents : its workflows; mean_agent_s, worst_agent_s : how long those took that ended well
    """

    tenant: str
    calls: int
    failed: int
    tokens: float
    mean_wait_s: float
    worst_wait_s: float
    mean_turnaround_s: float
    share: float
    worst_delay_s: float
    agents: int
    mean_agent_s: float
    worst_agent_s: float


def accounts_of(table: CallTable, weights: Mapping[str, float] | None = None) -> list[TenantAccount]:
    """Account of every tenant, by name; empty where there is one tenant alone. weights : others have 1"""
    flows = table.workload.workflows
    names, owner = np.unique([w.tenant for w in flows], return_inverse=True)
    if len(names) < 2:
        return []
    of_call = owner[table.workflow]
    prompt = np.array([c.prompt_tokens for c in table.workload.calls()], dtype=np.float64)
    tokens = np.where(table.ok, prompt + table.output_tokens, 0.0)
    wait, turnaround = table.dispatched_s - table.arrival_s, table.finished_s - table.arrival_s
    late, took = _delays_s(table, tokens, weights or {}), _agent_s(table)
    weight = np.array([(weights or {}).get(str(name), 1.0) for name in names])
    total = float(tokens.sum()) or 1.0
    out = []
    for i in range(len(names)):
        mine, good = of_call == i, (of_call == i) & table.ok
        out.append(
            TenantAccount(
                str(names[i]), int(mine.sum()), int((mine & ~table.ok).sum()), float(tokens[mine].sum()),
                _mean(wait[good]), float(np.max(wait[good], initial=0.0)), _mean(turnaround[good]),
                float(tokens[mine].sum()) / total * float(weight.sum() / weight[i]),
                float(np.max(late[owner == i], initial=0.0)), int((owner == i).sum()),
                _mean(took[owner == i]), float(np.nanmax(took[owner == i], initial=0.0)),
            )
        )  # fmt: skip
    return out


def figures_of(accounts: Sequence[TenantAccount], weights: Mapping[str, float] | None = None) -> dict[str, float]:
    """As rows of a report hold them: Jain's index and the worst delay, and each tenant's account where they are few."""
    if not accounts:
        return {}
    out = {
        "tenants_jain": jain(a.tokens / (weights or {}).get(a.tenant, 1.0) for a in accounts),
        "tenants_worst_delay_s": max(a.worst_delay_s for a in accounts),
    }
    for account in accounts if len(accounts) <= MOST_TENANTS else ():
        found = asdict(account)
        out |= {f"tenant/{account.tenant}/{name}": float(found[name]) for name in found if name != "tenant"}
    return out


def _delays_s(table: CallTable, tokens: Array, weights: Mapping[str, float]) -> Array:
    """(workflows,) seconds behind the finish under ideal sharing at the run's mean rate; 0 for those that failed."""
    good = table.workflow_ok()
    work = np.bincount(table.workflow, weights=tokens, minlength=len(good))
    begin = float(table.workflow_arrival_s[0])
    rate = max(float(tokens.sum()), 1e-9) / max(float(np.nanmax(table.finished_s)) - begin, 1e-9)
    arrivals = np.array([w.arrival_s for w in table.workload.workflows])
    wants = [
        Demand(w.arrival_s, float(x), weights.get(w.tenant, 1.0))
        for w, x in zip(table.workload.workflows, work, strict=True)
    ]
    ideal = ideal_finish_s(wants, rate)
    out = np.zeros(len(good))
    out[good] = np.maximum(table.workflow_latency_s() + arrivals[good] - np.array(ideal)[good], 0.0)
    return out


def _agent_s(table: CallTable) -> Array:
    """(workflows,) seconds from arrival to end; NaN for those that failed."""
    good = table.workflow_ok()
    took = np.full(len(good), np.nan)
    took[good] = table.workflow_latency_s()
    return took


def _mean(values: Array) -> float:
    """Of those that are known."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else 0.0
