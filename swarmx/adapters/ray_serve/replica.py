"""`SwarmXReplica`: a deployment that inherits from it tells the router and the scaler what they need to know.

    class LLM(SwarmXReplica):
        swarmx_device, swarmx_slots = "h100", 64

        async def generate(self, prompt: str) -> str: ...

Every public method is counted while it runs. How long an answer is, is read from its OpenAI `usage`, else from the
number of chunks of a stream, else from the text's length at four characters a token; `swarmx_produced` says it exactly.
`swarmx_load` may be overridden to report the engine's own numbers. Nothing here imports Ray until a replica runs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from swarmx.adapters.ray_serve import counting
from swarmx.adapters.ray_serve.demand import CallCounts
from swarmx.adapters.ray_serve.reporting import Reporter
from swarmx.adapters.ray_serve.states import Ended
from swarmx.usage import Marks, Usage

LATEST = 256  # ended calls that the statistics carry along


class Inside:
    """One call while it runs here."""

    __slots__ = (
        "began_s", "chunks", "first_s", "key", "kv", "marks", "on_first", "over", "prompt_tokens", "tokens", "type",
    )  # fmt: skip

    def __init__(
        self, key: str, type: str, prompt_tokens: int, began_s: float, marks: Marks, on_first: Callable[[], None]
    ) -> None:  # fmt: skip
        self.key, self.type, self.prompt_tokens, self.began_s, self.marks = key, type, prompt_tokens, began_s, marks
        self.tokens: int | None = None
        self.chunks = 0
        self.kv = float(prompt_tokens)
        self.first_s: float | None = None
        self.over, self.on_first = False, on_first

    def first(self) -> None:
        """The first chunk of its answer is there."""
        self.first_s = time.monotonic() - self.began_s
        self.on_first()

    def prompt_said(self, tokens: int) -> None:
        """How long its prompt really is; 0 where that is not said. What it holds stays as it was entered."""
        self.prompt_tokens = tokens or self.prompt_tokens


class SwarmXReplica:
    """Mixin for a Serve deployment.

    swarmx_slots : calls that the engine runs at once, default the deployment's max_ongoing_requests
    swarmx_speed : relative to the other replicas, until it is learned; swarmx_device : what it runs on
    """

    swarmx_device: str = "default"
    swarmx_speed: float = 1.0
    swarmx_slots: int | None = None
    swarmx_context_tokens: int | None = None
    swarmx_kv_capacity_tokens: int | None = None
    _swarmx_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in list(vars(cls).items()):
            if counting.is_called(name, method):
                setattr(cls, name, counting.counted(method))

    # ---- what Serve asks for ----

    def record_routing_stats(self) -> dict[str, Any]:
        """Pulled by Serve's controller, and given to the routers of all handles."""
        book = self._swarmx_book()
        return {**book.stats(self), "number": book.number, "ended": [e.row() for e in book.latest]}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Pulled by Serve's controller, and given to the autoscaling policy."""
        counts = self._swarmx_book().counts
        counts.slots, counts.speed = self.swarmx_slots or 0, self.swarmx_speed
        return counts.stats()

    # ---- what a deployment may override or call ----

    def swarmx_load(self) -> dict[str, int]:
        """The engine's own numbers, of `running`, `waiting` and `kv_tokens`; what is missing is counted here."""
        return {}

    def swarmx_produced(self, output_tokens: int, prompt_tokens: int | None = None) -> None:
        """From inside a call: how long its answer is, and its prompt."""
        inside = counting.current()
        if inside is not None:
            inside.tokens = output_tokens
            inside.prompt_said(prompt_tokens or 0)

    # ---- counting ----

    def _swarmx_book(self) -> Book:
        book: Book | None = self.__dict__.get("_swarmx_book_of")
        if book is None:
            with self._swarmx_lock:
                book = self.__dict__.setdefault("_swarmx_book_of", Book())
        return book


class Book:
    """Calls of one replica. All methods may be called from any thread."""

    def __init__(self) -> None:
        self.counts = CallCounts()
        self.latest: deque[Ended] = deque(maxlen=LATEST)
        self.number = 0
        self.reporter = Reporter()
        self._usage = Usage(time.monotonic())
        self._kv = 0.0
        self._rate: deque[tuple[float, int]] = deque(maxlen=LATEST)  # (end, tokens)
        self._lock = threading.RLock()

    def enter(self, replica: SwarmXReplica, args: tuple[Any, ...], kwargs: dict[str, Any], method: str) -> Inside:
        """A call begins."""
        key, prompt_tokens = counting.named(args, kwargs)
        with self._lock:
            now = self._advance()
            inside = Inside(
                key, method, prompt_tokens, now, self._usage.marks(), lambda: self.reporter.first_token(key)
            )
            self._usage.prefilled += prompt_tokens
            self._kv += inside.kv
            self.counts.arrived()
            self.counts.began()
        self.reporter.begin(replica, self)
        return inside

    def leave(self, replica: SwarmXReplica, inside: Inside, status: str, tokens: int) -> None:
        """A call ends, in any way."""
        inside.over = True
        with self._lock:
            now = self._advance()
            self._kv -= inside.kv
            seconds = max(now - inside.began_s, 1e-6)
            self.counts.ended(seconds)
            cut = self._usage.segment(inside.marks, seconds, float(tokens))
            ended = Ended(
                inside.key, inside.type, status, tokens, seconds, cut.batch, cut.kv, cut.prefilled,
                inside.prompt_tokens, inside.first_s,
            )  # fmt: skip
            self.latest.append(ended)
            self.number += 1
            self._rate.append((now, tokens))
        self.reporter.add(ended, replica, self)

    def stats(self, replica: SwarmXReplica) -> dict[str, Any]:
        """The present numbers, see `swarmx.adapters.ray_serve.states`."""
        with self._lock:
            here = self.counts.running
            slots = replica.swarmx_slots or here
            found: dict[str, Any] = {
                "running": min(here, slots), "waiting": max(here - slots, 0), "kv_tokens": int(self._kv),
                "tokens_per_s": self._tokens_per_s(), "device": replica.swarmx_device, "speed": replica.swarmx_speed,
                "slots": replica.swarmx_slots, "context_tokens": replica.swarmx_context_tokens,
                "kv_capacity_tokens": replica.swarmx_kv_capacity_tokens, "at_s": time.time(),
            }  # fmt: skip
        return found | replica.swarmx_load()

    def _advance(self) -> float:
        now = time.monotonic()
        self._usage.advance(now, float(self.counts.running), self._kv)
        return now

    def _tokens_per_s(self) -> float:
        """Of the calls that ended in the last ten seconds."""
        since = time.monotonic() - 10.0
        return sum(tokens for at, tokens in self._rate if at >= since) / 10.0
