"""Messages that are registered from proto3 text at import time."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarmx.adapters import wire
from swarmx.adapters.envoy.messages import EXT_PROC, HEALTH_CHECK, pb
from swarmx.adapters.keda.messages import EXTERNAL_SCALER


@pytest.mark.parametrize("text", [EXT_PROC, HEALTH_CHECK, EXTERNAL_SCALER], ids=["ext_proc", "health", "keda"])
def test_our_parser_agrees_with_protoc(text: str, tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="the comparison needs grpcio-tools")
    from google.protobuf import descriptor_pb2
    from grpc_tools import _proto

    (tmp_path / "x.proto").write_text(text)
    include = Path(next(iter(_proto.__path__)))
    out = tmp_path / "x.bin"
    assert protoc.main(["protoc", f"-I{tmp_path}", f"-I{include}", f"--descriptor_set_out={out}", "x.proto"]) == 0
    compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    del compiled.service[:]
    compiled.ClearField("options")
    assert wire.parse("x.proto", text) == compiled


def test_text_outside_the_subset_is_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        wire.parse("x.proto", "message A { string a; }")


def test_unknown_fields_of_a_newer_envoy_do_not_break_parsing() -> None:
    request = pb.ProcessingRequest(request_body=pb.HttpBody(body=b"x", end_of_stream=True))
    newer = request.SerializeToString() + b"\xfa\x3f\x03abc"  # field 1023, which nobody here knows
    assert pb.ProcessingRequest.FromString(newer).request_body.body == b"x"
