"""The part of Envoy's external processing protocol that a picker speaks, and gRPC's health check.

Field numbers are Envoy's (envoy.service.ext_proc.v3); the package name is ours, as only numbers travel. Enums are
written as int32, which is the same on the wire.
"""

from __future__ import annotations

from typing import Any, Final

from swarmx.adapters.wire import messages

PROCESS: Final = ("envoy.service.ext_proc.v3.ExternalProcessor", "Process")
HEALTH: Final = "grpc.health.v1.Health"

NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX = 0, 1, 2, 3, 4  # BodySendMode
OVERWRITE = 2  # HeaderAppendAction OVERWRITE_IF_EXISTS_OR_ADD
UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = 0, 1, 2, 3  # HealthCheckResponse.ServingStatus

EXT_PROC = """
syntax = "proto3";
package swarmx.extproc;
import "google/protobuf/struct.proto";
import "google/protobuf/duration.proto";

message HeaderValue { string key = 1; string value = 2; bytes raw_value = 3; }
message HeaderMap { repeated HeaderValue headers = 1; }
message HeaderValueOption { HeaderValue header = 1; int32 append_action = 3; }
message HeaderMutation { repeated HeaderValueOption set_headers = 1; repeated string remove_headers = 2; }
message HttpHeaders { HeaderMap headers = 1; bool end_of_stream = 3; }
message HttpBody { bytes body = 1; bool end_of_stream = 2; }
message HttpTrailers { HeaderMap trailers = 1; }
message Metadata { map<string, google.protobuf.Struct> filter_metadata = 1; }
message ProtocolConfiguration {
  int32 request_body_mode = 1;
  int32 response_body_mode = 2;
  bool send_body_without_waiting_for_header_response = 3;
}
message ProcessingRequest {
  oneof request {
    HttpHeaders request_headers = 2;
    HttpHeaders response_headers = 3;
    HttpBody request_body = 4;
    HttpBody response_body = 5;
    HttpTrailers request_trailers = 6;
    HttpTrailers response_trailers = 7;
  }
  Metadata metadata_context = 8;
  map<string, google.protobuf.Struct> attributes = 9;
  bool observability_mode = 10;
  ProtocolConfiguration protocol_config = 11;
}
message StreamedBodyResponse { bytes body = 1; bool end_of_stream = 2; }
message BodyMutation {
  oneof mutation { bytes body = 1; bool clear_body = 2; StreamedBodyResponse streamed_response = 3; }
}
message CommonResponse {
  int32 status = 1;
  HeaderMutation header_mutation = 2;
  BodyMutation body_mutation = 3;
  bool clear_route_cache = 5;
}
message HeadersResponse { CommonResponse response = 1; }
message BodyResponse { CommonResponse response = 1; }
message TrailersResponse { HeaderMutation header_mutation = 1; }
message HttpStatus { int32 code = 1; }
message ImmediateResponse { HttpStatus status = 1; HeaderMutation headers = 2; bytes body = 3; string details = 5; }
message ProcessingMode {
  int32 request_header_mode = 1;
  int32 response_header_mode = 2;
  int32 request_body_mode = 3;
  int32 response_body_mode = 4;
  int32 request_trailer_mode = 5;
  int32 response_trailer_mode = 6;
}
message ProcessingResponse {
  oneof response {
    HeadersResponse request_headers = 1;
    HeadersResponse response_headers = 2;
    BodyResponse request_body = 3;
    BodyResponse response_body = 4;
    TrailersResponse request_trailers = 5;
    TrailersResponse response_trailers = 6;
    ImmediateResponse immediate_response = 7;
  }
  google.protobuf.Struct dynamic_metadata = 8;
  ProcessingMode mode_override = 9;
  google.protobuf.Duration override_message_timeout = 10;
}
"""

HEALTH_CHECK = """
syntax = "proto3";
package swarmx.health;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse { int32 status = 1; }
"""

pb: Any = messages("swarmx_extproc.proto", EXT_PROC)
health: Any = messages("swarmx_health.proto", HEALTH_CHECK)
