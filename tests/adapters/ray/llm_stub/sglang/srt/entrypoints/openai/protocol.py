"""The request and answer models that Ray Serve LLM imports from its engine's package, with the fields it uses.

Ray takes vLLM's or SGLang's, both of which need gigabytes and a GPU. Field names are those of the OpenAI API.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class ChatCompletionRequest(_Open):
    messages: list[dict[str, Any]]
    model: str | None = None
    stream: bool = False
    max_tokens: int | None = None
    request_id: str | None = None


class CompletionRequest(_Open):
    prompt: str | list[str]
    model: str | None = None
    stream: bool = False
    max_tokens: int | None = None
    request_id: str | None = None


class ChatCompletionResponse(_Open):
    choices: list[dict[str, Any]] = []
    usage: dict[str, int] = {}


class CompletionResponse(ChatCompletionResponse):
    pass


class ChatCompletionStreamResponse(_Open):
    pass


class CompletionStreamResponse(_Open):
    pass


class EmbeddingRequest(_Open):
    pass


class EmbeddingResponse(_Open):
    pass


class ScoringRequest(_Open):
    pass


class ScoringResponse(_Open):
    pass


class TokenizeRequest(_Open):
    pass


class TokenizeResponse(_Open):
    pass


class DetokenizeRequest(_Open):
    pass


class DetokenizeResponse(_Open):
    pass
