"""Earliest deadline first, or least slack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swarmx.ordering.contract import Asked


@dataclass(frozen=True, slots=True)
class Edf:
    """Key = the call's deadline; with slack=True, minus its expected work.

    While a call waits its slack falls at the same pace as everybody's, so the order by slack does not change and the
    key can be fixed: deadline - work. A call without deadline gets workflow arrival + slo_s of its tenant (`limits_s`,
    else `slo_s`).
    """

    slo_s: float = 60.0
    limits_s: Mapping[str, float] = field(default_factory=dict)
    slack: bool = False

    def key(self, asked: Asked) -> float:
        call = asked.call
        deadline = call.deadline_s
        if deadline is None:
            deadline = call.workflow_start_s + self.limits_s.get(call.tenant, self.slo_s)
        return deadline - asked.work_s if self.slack else deadline
