"""A picker that thinks nothing: the same messages, always the same endpoint. What is left is the protocol's own cost.

python benchmarks/_idle_picker.py PORT ENDPOINT
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio

from swarmx.adapters.envoy import replies
from swarmx.adapters.envoy.messages import HEALTH, PROCESS, SERVING, health, pb
from swarmx.adapters.envoy.server import OPTIONS


async def serve(port: int, endpoint: str) -> None:
    """Until killed."""
    named = replies.destination((endpoint,), False)

    async def process(_: Any, context: Any) -> None:
        body = b""
        while (message := await context.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("request")
            if message.observability_mode:
                continue
            if kind == "request_body":
                body += message.request_body.body
                if message.request_body.end_of_stream:
                    for answer in (named, *replies.body_again(body)):
                        await context.write(answer)
            elif kind == "response_headers":
                await context.write(replies.GO_ON_RESPONSE_HEADERS)
            elif kind == "response_body":
                said = message.response_body
                for answer in replies.body_again(said.body, response=True, last=said.end_of_stream):
                    await context.write(answer)

    async def check(_: Any, __: Any) -> Any:
        return health.HealthCheckResponse(status=SERVING)

    server = grpc.aio.server(options=OPTIONS)
    processing = grpc.stream_stream_rpc_method_handler(process, pb.ProcessingRequest.FromString, None)
    checking = grpc.unary_unary_rpc_method_handler(
        check, health.HealthCheckRequest.FromString, health.HealthCheckResponse.SerializeToString
    )
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(PROCESS[0], {PROCESS[1]: processing}),
            grpc.method_handlers_generic_handler(HEALTH, {"Check": checking}),
        )
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
