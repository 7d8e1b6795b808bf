"""Three models behind one ingress, routed and scaled by swarmx. The engines are emulated: they sleep as engines would.

    serve run serve.yaml          # in this directory, with the extra ray installed
    python drive_agents.py              # in another terminal: agents that plan, write code in parallel and summarise

Two lines of each model's options are swarmx: `request_router_config` and `autoscaling_config`. The ingress is a
deployment of its own, because the router of a deployment that takes HTTP itself sees no prompt, only a raw connection.

Three arguments close the loop: with `logs` calls are recorded there, `swarmx train` learns from them, and with `model`
and `demand` the routers predict lengths and the scaler sees what live agents will still call.
"""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request

from swarmx.adapters.ray_serve.autoscaling import swarmx_autoscaling
from swarmx.adapters.ray_serve.emulated import EmulatedEngine
from swarmx.adapters.ray_serve.settings import router_config

SLOTS = 4  # calls that a replica runs at once
SPEEDS = (1.0, 0.5)  # of every other replica: a mixed fleet
CONSTANTS = (0.01, 0.0005, 0.0, 0.0001)  # seconds a token: alone, per call beside it, per KV token; per prompt token
MEAN_TOKENS = {"plan": 40.0, "code": 80.0, "summarise": 20.0}


def router(logs: str | None = None, model: str | None = None, demand: str | None = None) -> dict[str, Any]:
    """The router's configuration.

    logs : directory for records and receipts; model : directory of `swarmx train`; demand : log of earlier calls
    """
    config: dict[str, Any] = {}
    if logs is not None:
        config["log"] = {"directory": logs, "prompt": "keep", "rotate_s": 10}
    if model is not None:
        config["predictor"] = {"kind": "local", "path": model}
    if demand is not None:
        config["demand"] = {"log": demand, "horizon_s": 30}
    return config


def model(name: str, replicas: int, most: int, config: dict[str, Any]) -> serve.Application:
    """One model's deployment, between `replicas` and `most` replicas."""
    deployment = serve.deployment(EmulatedEngine).options(
        name=name,
        max_ongoing_requests=SLOTS,
        request_router_config=router_config(preset="late", config=config),
        autoscaling_config=swarmx_autoscaling(replicas, most, slots=SLOTS, cold_s=10.0),
        ray_actor_options={"num_cpus": 0.1},
    )
    rule = {"mean_tokens": MEAN_TOKENS[name], "cv": 1.0, "seed": len(name)}
    return deployment.bind(SPEEDS, SLOTS, CONSTANTS, rule)


@serve.deployment(name="ingress", max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0.1})
class Ingress:
    """POST {"model": ..., "prompt": ...}; `x-swarmx-*` headers say whose work it is and travel on to the router."""

    def __init__(self, **models: DeploymentHandle) -> None:
        self.models = models

    async def __call__(self, request: Request) -> dict[str, Any]:
        return await self.complete(await request.json(), dict(request.headers))

    async def complete(self, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        answer: dict[str, Any] = await self.models[body["model"]].remote(body["prompt"], headers=headers)
        return answer


def app(arguments: dict[str, str]) -> serve.Application:
    """arguments : replicas and most, of each model, and those of `router`; as `args:` in serve.yaml"""
    left = dict(arguments)
    replicas, most = int(left.pop("replicas", 1)), int(left.pop("most", 4))
    config = router(**left)
    return Ingress.bind(**{name: model(name, replicas, most, config) for name in MEAN_TOKENS})
