"""Request headers that say who asks, for which workflow, how urgent it is.

Ours are `x-swarmx-*`, read as the gateway reads them. Beside them the names of the Gateway API Inference Extension and
of its users are understood: `x-gateway-inference-objective` (its priority is configured per objective),
`x-gateway-inference-fairness-id`, and targets in milliseconds for the first token and for each token. Ours win where
both are given. A value that cannot be read is as if it were not there: routing never fails for a header.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from swarmx.adapters.gateway.identity import SESSION_HEADERS, identity_of
from swarmx.types import Call

OBJECTIVE = "x-gateway-inference-objective"
FAIRNESS = ("x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id")
TTFT = ("x-slo-ttft-ms", "x-llm-d-slo-ttft-ms")
TPOT = ("x-slo-tpot-ms", "x-llm-d-slo-tpot-ms")
EXPECTED_TOKENS = 256  # allowed for when targets per token become a deadline and the request names no maximum
_WANTED = frozenset([OBJECTIVE, *FAIRNESS, *TTFT, *TPOT, "x-request-id", "traceparent", ":path", *SESSION_HEADERS])
_MAX_CHARS = 200


def wanted(header_map: Any) -> dict[str, str]:
    """The headers of an ext_proc header map that matter here: lower-case name -> text, cut at 200 characters."""
    found = {}
    for header in header_map.headers:
        key = header.key
        if key in _WANTED or key.startswith("x-swarmx-"):
            found[key] = (header.value or header.raw_value.decode("utf-8", "replace"))[:_MAX_CHARS]
    return found


def identified(call: Call, headers: Mapping[str, str], objectives: Mapping[str, int]) -> Call:
    """The call with its id, workflow, tenant, priority, type and deadline as the headers give them.

    objectives : name of an InferenceObjective -> its priority; above 0 is high, below 0 low
    """
    now = call.arrival_s
    said = identity_of(headers, {}, now, None)
    tenant, priority, deadline = said.tenant, said.priority, said.deadline_s
    if "x-swarmx-tenant" not in headers:
        tenant = next((headers[name] for name in FAIRNESS if headers.get(name)), tenant)
    if "x-swarmx-priority" not in headers and (level := objectives.get(headers.get(OBJECTIVE, ""), 0)):
        priority = "high" if level > 0 else "low"
    if deadline is None and (target := _target_s(headers, call.max_tokens or EXPECTED_TOKENS)) is not None:
        deadline = now + target
    return replace(
        call,
        id=headers.get("x-swarmx-call-id") or headers.get("x-request-id") or said.call_id,
        workflow_id=said.workflow_id,
        workflow_arrival_s=None if said.workflow_arrival_s is None else min(said.workflow_arrival_s, now),
        parent_id=said.parent_id,
        tenant=tenant,
        priority=priority,
        type=said.type,
        deadline_s=deadline,
    )


def _target_s(headers: Mapping[str, str], tokens: int) -> float | None:
    """Seconds that targets for the first and for each token allow in all; None unless both are given."""
    first, each = (_milliseconds(headers, names) for names in (TTFT, TPOT))
    target = math.inf if first is None or each is None else (first + each * tokens) / 1000
    return target if math.isfinite(target) else None


def _milliseconds(headers: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    for name in names:
        try:
            value = float(headers.get(name, ""))
        except ValueError:
            continue
        if math.isfinite(value) and value > 0:
            return value
    return None
