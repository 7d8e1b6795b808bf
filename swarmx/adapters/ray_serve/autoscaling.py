"""Serve's autoscaling policies over the swarmx scaler: one deployment, or all models of an application under a budget.

    @serve.deployment(autoscaling_config=swarmx_autoscaling(min_replicas=1, max_replicas=8, slots=16))

Serve wraps every policy in delays, factors and bounds of its own. `swarmx_autoscaling` sets its delays to zero and its
factors to one, because `bounded` applies all of that once already. Serve pickles this module by value: it keeps no
state of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from swarmx.adapters.ray_serve.deciding import Decider, decider
from swarmx.adapters.ray_serve.demand_pages import Foreseen
from swarmx.adapters.ray_serve.receipts import Sender

log = logging.getLogger("ray.serve")
POLICY = "swarmx.adapters.ray_serve.autoscaling:SwarmXAutoscalingPolicy"
APPLICATION_POLICY = "swarmx.adapters.ray_serve.autoscaling:SwarmXApplicationPolicy"
LOOK_BACK_S = 12.0  # Serve's window for its own counts; above its metrics_interval_s of 10, below which it warns


class SwarmXAutoscalingPolicy:
    """Replicas for one deployment; see `deciding.decider` for the arguments, which `AutoscalingPolicy` takes as kwargs.

    Neither its constructor nor its call raises: in Serve's controller the one breaks the status of all applications,
    the other stops scaling without a word. With arguments that cannot be, Serve's own policy scales, and the
    controller's log says why; `swarmx_autoscaling` refuses them before anything is deployed.
    """

    def __init__(self, **arguments: Any) -> None:
        self.decider, self.problem = _made(**arguments)
        self.sender: Any = None

    def __call__(self, ctx: Any) -> tuple[float, dict[str, Any]]:
        try:
            return self._decided(ctx)
        except Exception as problem:  # such as another version of swarmx in the controller than here
            return ctx.target_num_replicas, {"swarmx_problem": repr(problem)}

    def _decided(self, ctx: Any) -> tuple[float, dict[str, Any]]:
        if self.decider is None:
            return _serves_own(ctx), {"swarmx_problem": self.problem}
        if self.sender is None:
            self.sender = _reporting(self.decider, ctx)
        target = self.decider.targets({ctx.deployment_name: ctx})[ctx.deployment_name]
        return target, {"swarmx_failures": self.decider.failures}


class SwarmXApplicationPolicy:
    """Replicas for several deployments of an application under one budget; as careful as the policy of one deployment.

    deployments : name -> {"units": of the budget that a replica takes, "weight": of its calls}; those named here, or
        all when none is, share the budget; the others stay with Serve's own policy
    budget : units in all, None for as many as each wants within its max_replicas
    """

    def __init__(self, deployments: Mapping[str, Mapping[str, Any]] | None = None, **arguments: Any) -> None:
        self.names = frozenset(deployments or ())
        self.decider, self.problem = _made(deployments=deployments, **arguments)
        self.sender: Any = None

    def __call__(self, contexts: Mapping[Any, Any]) -> tuple[dict[Any, float], dict[Any, dict[str, Any]]]:
        try:
            return self._decided(contexts)
        except Exception as problem:
            held = {id_: float(ctx.target_num_replicas) for id_, ctx in contexts.items()}
            return held, {id_: {"swarmx_problem": repr(problem)} for id_ in contexts}

    def _decided(self, contexts: Mapping[Any, Any]) -> tuple[dict[Any, float], dict[Any, dict[str, Any]]]:
        ours = {ctx.deployment_name: ctx for ctx in contexts.values() if self._is_ours(ctx)}
        found: dict[str, int] = {}
        if self.decider is not None and ours:
            if self.sender is None:
                self.sender = _reporting(self.decider, next(iter(ours.values())))
            found = self.decider.targets(ours)
        targets: dict[Any, float] = {}
        for id_, ctx in contexts.items():
            targets[id_] = found[ctx.deployment_name] if ctx.deployment_name in found else _serves_own(ctx)
        failures = 0 if self.decider is None else self.decider.failures
        return targets, {id_: {"swarmx_failures": failures, "swarmx_problem": self.problem} for id_ in contexts}

    def _is_ours(self, ctx: Any) -> bool:
        return not self.names or ctx.deployment_name in self.names


def _made(**arguments: Any) -> tuple[Decider | None, str]:
    """The decider, or None and the problem, which is logged."""
    try:
        return decider(**arguments), ""
    except Exception as problem:
        log.error("swarmx does not scale, Serve's own policy does: %s", problem)
        return None, str(problem)


def _reporting(made: Decider, ctx: Any) -> Sender:
    sender = Sender(ctx.app_name or "")
    made.on_receipt, made.on_failure = sender, sender.failed
    made.foreseen = Foreseen(sender.application).demand
    return sender


def _serves_own(ctx: Any) -> float:
    from ray.serve.autoscaling_policy import replica_queue_length_autoscaling_policy

    try:
        wanted, _ = replica_queue_length_autoscaling_policy(ctx)
        return float(wanted)
    except Exception:  # never out of here: it would stop the scaling of all deployments
        return float(ctx.target_num_replicas)


def swarmx_autoscaling(
    min_replicas: int, max_replicas: int, slots: float, initial_replicas: int | None = None, **arguments: Any
) -> Any:
    """The `AutoscalingConfig` with which a deployment is scaled by swarmx and by nothing else.

    slots : calls that a replica runs at once, used until its `record_autoscaling_stats` says so itself
    arguments : of `deciding.decider`, such as policy, cold_s or bounds={"down_delay_s": 120}
    Raises BadInput for a wrong argument, here and not first in the controller.
    """
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    decider(**arguments)
    return AutoscalingConfig(
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        initial_replicas=initial_replicas,
        target_ongoing_requests=slots,
        upscale_delay_s=0.0,
        downscale_delay_s=0.0,
        downscale_to_zero_delay_s=0.0,
        upscaling_factor=1.0,
        downscaling_factor=1.0,
        look_back_period_s=LOOK_BACK_S,
        policy=AutoscalingPolicy(policy_function=POLICY, policy_kwargs=arguments),
    )


def application_settings(budget: float | None = None, **arguments: Any) -> dict[str, Any]:
    """The `autoscaling_policy:` block of an application in Serve's configuration file.

    arguments : of `SwarmXApplicationPolicy`. Each deployment still needs an `autoscaling_config`, best the one of
    `swarmx_autoscaling`. Raises BadInput for a wrong argument.
    """
    given = arguments if budget is None else {"budget": budget, **arguments}
    decider(**given)
    return {"policy_function": APPLICATION_POLICY, "policy_kwargs": given}
