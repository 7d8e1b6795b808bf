"""The answers that go back to Envoy, as bytes; those without anything of their own are made once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from swarmx.adapters.envoy.messages import OVERWRITE, pb
from swarmx.adapters.envoy.ride import Refused

DESTINATION: Final = "x-gateway-destination-endpoint"
DECISION: Final = "x-swarmx-decision"
CHUNK_BYTES = 62_000  # streamed body chunks stay below 64 KiB

_response = pb.ProcessingResponse
GO_ON_REQUEST_HEADERS: Final[bytes] = _response(request_headers=pb.HeadersResponse()).SerializeToString()
GO_ON_REQUEST_BODY: Final[bytes] = _response(request_body=pb.BodyResponse()).SerializeToString()
GO_ON_REQUEST_TRAILERS: Final[bytes] = _response(request_trailers=pb.TrailersResponse()).SerializeToString()
GO_ON_RESPONSE_HEADERS: Final[bytes] = _response(response_headers=pb.HeadersResponse()).SerializeToString()
GO_ON_RESPONSE_BODY: Final[bytes] = _response(response_body=pb.BodyResponse()).SerializeToString()
GO_ON_RESPONSE_TRAILERS: Final[bytes] = _response(response_trailers=pb.TrailersResponse()).SerializeToString()


def destination(endpoints: tuple[str, ...], in_body: bool, decision: str | None = None) -> bytes:
    """Name the endpoints, in order of preference, in the header and, equal, in the dynamic metadata.

    in_body : as the answer to the request's body (buffered), else to its headers
    decision : told in a header of the request, by which a watching stream knows whose answer it sees
    No endpoints: the proxy chooses by itself, and a destination that the client put into its request is removed.
    """
    return _destination(endpoints, in_body) if decision is None else _named(endpoints, in_body, decision)


def _named(endpoints: tuple[str, ...], in_body: bool, decision: str | None) -> bytes:
    value, metadata = ",".join(endpoints), None
    mutation = pb.HeaderMutation() if endpoints else pb.HeaderMutation(remove_headers=[DESTINATION])
    if endpoints:
        mutation.set_headers.append(_set(DESTINATION, value))
        metadata = pb.Struct()
        metadata["envoy.lb"] = {DESTINATION: value}
    if decision is not None:
        mutation.set_headers.append(_set(DECISION, decision))
    common = pb.CommonResponse(header_mutation=mutation, clear_route_cache=bool(endpoints))
    if in_body:
        whole = _response(request_body=pb.BodyResponse(response=common), dynamic_metadata=metadata)
    else:
        whole = _response(request_headers=pb.HeadersResponse(response=common), dynamic_metadata=metadata)
    return bytes(whole.SerializeToString())


_destination = lru_cache(maxsize=4096)(lambda endpoints, in_body: _named(endpoints, in_body, None))


def _set(key: str, value: str) -> Any:
    return pb.HeaderValueOption(header=pb.HeaderValue(key=key, raw_value=value.encode()), append_action=OVERWRITE)


def body_again(body: bytes, response: bool = False, last: bool = True) -> Iterator[bytes]:
    """The body given back in chunks, as full duplex wants it; `last` marks its end. An empty body is one chunk."""
    for begin in range(0, len(body) or 1, CHUNK_BYTES):
        piece = body[begin : begin + CHUNK_BYTES]
        streamed = pb.StreamedBodyResponse(body=piece, end_of_stream=last and begin + CHUNK_BYTES >= len(body))
        common = pb.CommonResponse(body_mutation=pb.BodyMutation(streamed_response=streamed))
        answer = pb.BodyResponse(response=common)
        whole = _response(response_body=answer) if response else _response(request_body=answer)
        yield whole.SerializeToString()


def decided(receipt: str) -> bytes:
    """Response headers with the receipt's id."""
    common = pb.CommonResponse(header_mutation=pb.HeaderMutation(set_headers=[_set(DECISION, receipt)]))
    return bytes(_response(response_headers=pb.HeadersResponse(response=common)).SerializeToString())


def refused(refusal: Refused) -> bytes:
    """An immediate response with an error body as OpenAI's clients read it."""
    kind = "rate_limit_error" if refusal.status == 429 else "server_error"
    error = {"error": {"message": refusal.message, "type": kind, "param": None, "code": None}}
    headers = [("content-type", "application/json")]
    if refusal.retry_after_s is not None:
        headers.append(("retry-after", str(max(1, round(refusal.retry_after_s)))))
    immediate = pb.ImmediateResponse(
        status=pb.HttpStatus(code=refusal.status),
        headers=pb.HeaderMutation(set_headers=[_set(key, value) for key, value in headers]),
        body=json.dumps(error).encode(),
        details=f"swarmx_{refusal.status}",
    )
    return bytes(_response(immediate_response=immediate).SerializeToString())
