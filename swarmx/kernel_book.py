"""Compiled bookkeeping of `swarmx.state`: what changes in the packed tables when a call starts, shows life, and ends.

Integrals over time tell the service model what went on at a replica while a call ran there: BATCH_S of running calls,
KV_S of KV tokens, PREFILLED counts prompt tokens. Their values at some time are marks, from which segments are cut.
"""

from __future__ import annotations

from numba import njit

from swarmx.kernel import (
    AWAITING,
    BATCH_S,
    CONTEXT,
    EXPECTED_KV,
    F_AGE,
    F_AGE_AT,
    F_DECODING,
    F_EXCESS,
    F_MEAN,
    F_NEED,
    F_PROMPT,
    F_REPLICA,
    F_REST,
    HEARD_AT,
    KV,
    KV_CAPACITY,
    KV_S,
    MINE,
    MINE_NEED,
    MINE_REST,
    OTHER,
    PREFILLED,
    REMAINING,
    SINCE,
    SLOTS,
    STALL_UNTIL,
    N,
    P,
)


@njit(cache=True, inline="always")
def _advance(replicas, i, now):  # type: ignore[no-untyped-def]
    """Add the time since the last event of replica i to its integrals."""
    elapsed = now - replicas[SINCE, i]
    if elapsed > 0:
        replicas[BATCH_S, i] += elapsed * min(replicas[MINE, i] + replicas[OTHER, i], replicas[SLOTS, i])
        replicas[KV_S, i] += elapsed * min(replicas[EXPECTED_KV, i], replicas[KV_CAPACITY, i])
        replicas[SINCE, i] = now


@njit(cache=True)
def enter(replicas, flights, row, i, mean, prompt, uncached, streamed, excess, now):  # type: ignore[no-untyped-def]
    """A call starts on replica i: fill its row of the flights, but for the grid, and count it.

    uncached : tokens of its prompt that must be prefilled; streamed : its first token will tell when that is done
    Returns (queued, need, uncached tokens yet to be seen, marks): whether it waits for a slot, and the KV tokens that
    it is expected to hold on average.
    """
    _advance(replicas, i, now)
    if replicas[MINE, i] == 0:
        replicas[HEARD_AT, i] = now
    queued = replicas[MINE, i] + replicas[OTHER, i] >= replicas[SLOTS, i]
    mean = min(mean, replicas[CONTEXT, i] - prompt, replicas[KV_CAPACITY, i] - prompt)
    need = prompt + mean / 2
    marks = replicas[BATCH_S, i], replicas[KV_S, i], replicas[PREFILLED, i]
    unseen = 0.0 if streamed or queued else uncached
    replicas[PREFILLED, i] += unseen
    stall = max(now, replicas[STALL_UNTIL, i]) + replicas[P, i] * uncached
    flights[row, F_REPLICA], flights[row, F_MEAN], flights[row, F_PROMPT] = i, mean, prompt
    flights[row, F_AGE], flights[row, F_AGE_AT], flights[row, F_DECODING] = 0.0, stall, 0.0 if queued else 1.0
    flights[row, F_EXCESS], flights[row, F_NEED], flights[row, F_REST] = excess, need, mean
    replicas[STALL_UNTIL, i] = stall
    for count in (MINE, AWAITING, N):
        replicas[count, i] += 1
    for tokens in (REMAINING, MINE_REST):
        replicas[tokens, i] += mean
    for tokens in (KV, MINE_NEED, EXPECTED_KV):
        replicas[tokens, i] += need
    return queued, need, uncached - unseen, marks


@njit(cache=True)
def hear(replicas, i, prefilled, now):  # type: ignore[no-untyped-def]
    """Replica i shows life, by which so many prompt tokens more are known to be prefilled; returns its marks."""
    _advance(replicas, i, now)
    replicas[HEARD_AT, i] = now
    replicas[PREFILLED, i] += prefilled
    return replicas[BATCH_S, i], replicas[KV_S, i], replicas[PREFILLED, i]


@njit(cache=True)
def decodes(replicas, flights, row, i, now):  # type: ignore[no-untyped-def]
    """The first token of a call on replica i was seen."""
    flights[row, F_AGE], flights[row, F_AGE_AT], flights[row, F_DECODING] = 1.0, now, 1.0
    _one_fewer_awaiting(replicas, i, now)


@njit(cache=True)
def leave(replicas, flights, row, last, i, need, awaiting, now):  # type: ignore[no-untyped-def]
    """A call leaves replica i; the last row of the flights takes the place of its row.

    need : as `enter` returned it; awaiting : its first token was not seen
    """
    _advance(replicas, i, now)
    replicas[MINE, i] -= 1
    replicas[MINE_REST, i] -= flights[row, F_REST]
    replicas[MINE_NEED, i] -= flights[row, F_NEED]
    if replicas[MINE, i] == 0:  # no rounding errors are left behind
        replicas[MINE_REST, i] = replicas[MINE_NEED, i] = 0.0
    if row != last:
        flights[row] = flights[last]
    replicas[EXPECTED_KV, i] -= need
    if awaiting:
        _one_fewer_awaiting(replicas, i, now)


@njit(cache=True, inline="always")
def _one_fewer_awaiting(replicas, i, now):  # type: ignore[no-untyped-def]
    replicas[AWAITING, i] -= 1
    if replicas[AWAITING, i] == 0:
        replicas[STALL_UNTIL, i] = min(replicas[STALL_UNTIL, i], now)
