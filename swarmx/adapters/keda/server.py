"""KEDA's external scaler over gRPC: wanted replicas as a metric with target 1, on which the HPA lands by itself.

The HPA computes ceil(value / 1) replicas, but changes nothing while value / current lies within its tolerance, 10 % by
default: above 10 replicas a wish of one more or less is swallowed. What is not known is an error, never a zero: KEDA
then holds, or uses the fallback of its ScaledObject.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import ceil
from typing import Any, Protocol

import grpc
import grpc.aio

from swarmx.adapters.keda.messages import SERVICE, pb
from swarmx.errors import BadInput

METRIC = "swarmx-wanted-replicas"
POOL = "pool"  # key in the trigger's metadata
PUSH_S = 0.5


class Wanted(Protocol):
    """Says what the scaler wants; raises KeyError for a pool that it does not know."""

    def wanted_replicas(self, pool: str) -> float | None:
        """None while nothing current is known."""

    @property
    def pools(self) -> tuple[str, ...]: ...


class KedaServer:
    """Serves one Wanted to any number of ScaledObjects."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._server: Any = None

    async def start(self, address: str) -> int:
        """Listen; returns the port. Raises BadInput when the address cannot be used."""
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        ref = pb.ScaledObjectRef.FromString
        handlers = {
            "IsActive": unary(self._is_active, ref, pb.IsActiveResponse.SerializeToString),
            "StreamIsActive": stream(self._stream_is_active, ref, pb.IsActiveResponse.SerializeToString),
            "GetMetricSpec": unary(self._metric_spec, ref, pb.GetMetricSpecResponse.SerializeToString),
            "GetMetrics": unary(
                self._metrics, pb.GetMetricsRequest.FromString, pb.GetMetricsResponse.SerializeToString
            ),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            port: int = self._server.add_insecure_port(address)
        except RuntimeError:
            raise BadInput(f"cannot listen on {address}, which is taken or not of this machine; name another") from None
        await self._server.start()
        return port

    async def stop(self) -> None:
        await self._server.stop(1.0)

    async def _is_active(self, ref: Any, context: Any) -> Any:
        return pb.IsActiveResponse(result=await self._ask(ref, context) > 0)

    async def _stream_is_active(self, ref: Any, context: Any) -> AsyncIterator[Any]:
        """The present state at once, then every change; silent while nothing is known."""
        pool = await self._pool(ref, context)
        last: bool | None = None
        while True:
            wanted = self.wanted.wanted_replicas(pool)
            if wanted is not None and (wanted > 0) != last:
                last = wanted > 0
                yield pb.IsActiveResponse(result=last)
            await asyncio.sleep(PUSH_S)

    async def _metric_spec(self, ref: Any, context: Any) -> Any:
        await self._pool(ref, context)
        spec = pb.MetricSpec(metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def _metrics(self, request: Any, context: Any) -> Any:
        if request.metricName not in ("", METRIC):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown metric; there is {METRIC}")
        wanted = await self._ask(request.scaledObjectRef, context)
        value = pb.MetricValue(metricName=METRIC, metricValue=ceil(wanted), metricValueFloat=wanted)
        return pb.GetMetricsResponse(metricValues=[value])

    async def _ask(self, ref: Any, context: Any) -> float:
        wanted = self.wanted.wanted_replicas(await self._pool(ref, context))
        if wanted is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no picker has answered lately")
            raise AssertionError("aborted")
        return wanted

    async def _pool(self, ref: Any, context: Any) -> str:
        """The pool that the trigger names; with one pool it need not."""
        named = ref.scalerMetadata.get(POOL) or (self.wanted.pools[0] if len(self.wanted.pools) == 1 else "")
        if named not in self.wanted.pools:
            known = ", ".join(self.wanted.pools)
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"metadata.{POOL} {named!r} is unknown; there are {known}"
            )
        return str(named)
