"""An emulated LLM engine behind a real OpenAI-compatible HTTP server: load tests without a GPU.

One process serves many ports, each a replica with its own speed. Time passes as in a continuous-batching engine (the
simulator's service model on the wall clock), answers are made-up words, and their number follows from the prompt's text
by a hidden rule. Faults are switched on over HTTP: `POST /mock/fault`.
"""

from __future__ import annotations

from swarmx.adapters.mock_replica.replica import MockReplica
from swarmx.adapters.mock_replica.rule import HiddenRule
from swarmx.adapters.mock_replica.server import MockOptions, mock_app, serve_mocks

__all__ = ["HiddenRule", "MockOptions", "MockReplica", "mock_app", "serve_mocks"]
