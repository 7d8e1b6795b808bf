"""Who may use the gateway, and how much of it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from swarmx.adapters.gateway.errors import Refused
from swarmx.adapters.gateway.settings import KeySettings
from swarmx.types import PRIORITIES, Priority

KEY_PREFIX = "sk-swarmx-"


def new_key() -> tuple[str, str]:
    """(a new API key of 256 random bits, its SHA-256 for the configuration)."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return key, digest(key)


def digest(secret: str) -> str:
    """SHA-256 in hex. Keys are random and long, so that no slow hash is needed."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def bearer(header: str | None) -> str | None:
    """The token of an Authorization header."""
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def matches(token: str | None, sha256: str | None) -> bool:
    """Whether a token is the one with this hash, in constant time."""
    return token is not None and sha256 is not None and hmac.compare_digest(digest(token), sha256)


@dataclass
class Bucket:
    """A token bucket: `rate` per second, at most `size` saved up; it may be overdrawn by what turned out larger."""

    rate: float
    size: float
    level: float = field(default=-1.0)
    seen_s: float = 0.0

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until the amount is there; 0 when it is. Nothing is taken."""
        if self.level < 0 and self.seen_s == 0.0:
            self.level = self.size
        else:
            self.level = min(self.size, self.level + (now - self.seen_s) * self.rate)
        self.seen_s = now
        return max(0.0, (min(amount, self.size) - self.level) / self.rate)

    def take(self, amount: float) -> None:
        self.level -= amount


class Tenant:
    """One API key at work."""

    def __init__(self, key: KeySettings) -> None:
        self.key = key
        self.running = 0
        self.calls = None if key.rate_per_s is None else Bucket(key.rate_per_s, key.burst)
        per_minute = key.tokens_per_minute
        self.tokens = None if per_minute is None else Bucket(per_minute / 60, per_minute)

    def admit(self, tokens: float, now: float) -> None:
        """Count one call in. tokens : what it is expected to use. Raises Refused (429) when a limit is reached."""
        if self.key.concurrency is not None and self.running >= self.key.concurrency:
            raise Refused(429, f"more than {self.key.concurrency} calls at once", "concurrency_limit", None, 1.0)
        if self.calls is not None and (wait := self.calls.wait_s(1.0, now)) > 0:
            raise Refused(429, f"more than {self.key.rate_per_s:g} calls per second", "rate_limit", None, wait)
        if self.tokens is not None and (wait := self.tokens.wait_s(tokens, now)) > 0:
            raise Refused(429, f"more than {self.key.tokens_per_minute:g} tokens per minute", "token_limit", None, wait)
        self.running += 1
        if self.calls is not None:
            self.calls.take(1.0)
        if self.tokens is not None:
            self.tokens.take(tokens)

    def leave(self, expected_tokens: float, used_tokens: float) -> None:
        """Count it out, and charge what it really used."""
        self.running -= 1
        if self.tokens is not None:
            self.tokens.take(used_tokens - expected_tokens)

    def clamp(self, priority: Priority) -> Priority:
        """The class asked for, or the key's ceiling where that is lower."""
        return PRIORITIES[max(PRIORITIES.index(priority), PRIORITIES.index(self.key.priority_ceiling))]


class Access:
    """Looks up who sent a request."""

    def __init__(self, keys: Sequence[KeySettings]) -> None:
        self._tenants = {key.sha256: Tenant(key) for key in keys}

    @property
    def open(self) -> bool:
        """No keys: everyone may come in."""
        return not self._tenants

    def tenant(self, authorization: str | None) -> Tenant | None:
        """The tenant of a key; None where there are no keys. Raises Refused (401) for a wrong or missing key."""
        if not self._tenants:
            return None
        token = bearer(authorization)
        if token is not None:
            hashed = digest(token)
            found = self._tenants.get(hashed)  # the time of this look-up says nothing of the key, only of its hash
            if found is not None and hmac.compare_digest(found.key.sha256, hashed):
                return found
        raise Refused(401, "wrong or missing API key", "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
