"""A picker that thinks nothing: the same messages, always the same endpoint. What is left is the protocol's own cost.

python benchmarks/_idle_picker.py PORT ENDPOINT
"""

from __future__ import annotations

import asyncio
import sys

from swarmx.adapters.envoy import replies
from swarmx.adapters.envoy.http2 import GrpcServer
from swarmx.adapters.envoy.messages import HEALTH, PROCESS, SERVING, health, pb
from swarmx.adapters.envoy.rpc import Rpc


async def serve(port: int, endpoint: str) -> None:
    """Until killed."""
    named = replies.destination((endpoint,), False)

    async def process(rpc: Rpc) -> None:
        body = b""
        while (raw := await rpc.read()) is not None:
            message = pb.ProcessingRequest.FromString(raw)
            kind = message.WhichOneof("request")
            if kind == "request_body":
                body += message.request_body.body
                if message.request_body.end_of_stream:
                    for answer in (named, *replies.body_again(body)):
                        await rpc.write(answer)
            elif kind == "response_headers":
                await rpc.write(replies.GO_ON_RESPONSE_HEADERS)
            elif kind == "response_body":
                said = message.response_body
                for answer in replies.body_again(said.body, response=True, last=said.end_of_stream):
                    await rpc.write(answer)

    async def check(rpc: Rpc) -> None:
        await rpc.read()
        await rpc.write(health.HealthCheckResponse(status=SERVING).SerializeToString())

    server = GrpcServer({f"/{PROCESS[0]}/{PROCESS[1]}": process, f"/{HEALTH}/Check": check})
    await server.start(f"127.0.0.1:{port}")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
