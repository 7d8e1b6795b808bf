"""What the public API accepts, as OpenAPI 3.1: served at /openapi.json and fuzzed by the tests."""

from __future__ import annotations

from typing import Any

_text = {"type": "string", "minLength": 1}
_limit = {"type": ["integer", "null"], "minimum": 1, "maximum": 100_000}
_message = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["system", "user", "assistant"]}, "content": {"type": "string"}},
}
_usage = {"type": "object", "properties": {"prompt_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"}}}
_error = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def document(models: list[str]) -> dict[str, Any]:
    """The description, for these models."""
    model = {"type": "string", "enum": models}
    stream = {"type": ["boolean", "null"]}
    chat = {"model": model, "messages": {"type": "array", "items": _message, "minItems": 1}, "max_tokens": _limit}
    calls: dict[str, tuple[list[str], dict[str, Any]]] = {
        "/v1/chat/completions": (["model", "messages"], {**chat, "stream": stream}),
        "/v1/completions": (
            ["model", "prompt"],
            {"model": model, "prompt": _text, "max_tokens": _limit, "stream": stream},
        ),
        "/v1/embeddings": (["model", "input"], {"model": model, "input": _text}),
        "/v1/responses": (["model", "input"], {"model": model, "input": _text, "max_output_tokens": _limit}),
        "/v1/select": (["model"], {**chat, "wait_s": {"type": "number", "minimum": 0, "maximum": 600}}),
    }
    paths = {path: {"post": _operation(required, properties)} for path, (required, properties) in calls.items()}
    listed = {"description": "Models", "content": {"application/json": {"schema": {"type": "object"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "swarmx gateway", "version": "1"},
        "paths": {**paths, "/v1/models": {"get": {"responses": {"200": listed, "401": _refusal("No key")}}}},
    }


def _operation(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    body = {"type": "object", "required": required, "properties": properties}
    answer = {"type": "object", "properties": {"usage": _usage}}
    content = {"application/json": {"schema": answer}, "text/event-stream": {"schema": {"type": "string"}}}
    refusals = {str(s): _refusal("Refused") for s in (400, 401, 404, 408, 413, 429, 500, 502, 503, 504)}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": {"description": "The answer", "content": content}, **refusals},
    }


def _refusal(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _error}}}
