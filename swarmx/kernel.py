"""The compiled inner loops of the scheduler: remaining work of what runs, cost of a placement, the walk of `late`.

Everything is in tokens and seconds. State comes as two packed float arrays (their row and column names are below), so
that a call from Python costs little. One kernel serves the simulator and every adapter.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# rows of the replica table, (ROWS, R), in Fortran order: what belongs to a replica lies together
SLOTS, CONTEXT, KV_CAPACITY, MINE, OTHER, OTHER_KV, REPORTED_KV, SENT_SINCE_KV = range(8)
STALL_UNTIL, A, B, C, P, USABLE, N, KV, REMAINING, TAU, AWAITING, MINE_REST, MINE_NEED = range(8, 21)
SINCE, BATCH_S, KV_S, PREFILLED, EXPECTED_KV, HEARD_AT = range(21, 27)  # see `swarmx.kernel_book`
REPLICA_ROWS = 27

# columns of the in-flight table, (calls, FLIGHT_COLUMNS + K); the grid's values follow
F_REPLICA, F_MEAN, F_PROMPT, F_AGE, F_AGE_AT, F_DECODING, F_EXCESS, F_NEED, F_REST = range(9)
FLIGHT_COLUMNS = 9

# columns of the waiting table, (W, WAITING_COLUMNS)
W_MEAN, W_OWN, W_PROMPT, W_LIMIT, W_DUE, W_PIN, W_OVERTAKEN, W_SINCE, W_LEVEL = range(9)
WAITING_COLUMNS = 9
SKIP = -1.0  # W_DUE of a call that is due, where only the others are looked at


@njit(cache=True)
def remaining_mean(levels, values, excess, age):  # type: ignore[no-untyped-def]
    """E[X - age | X > age] for one grid, the quantile function as in `swarmx.quantiles`."""
    k = levels.size
    top = 1.0 - levels[k - 1]
    if age >= values[k - 1]:
        return max(excess, 0.02 * age, 1.0)
    total = top * (values[k - 1] + excess - age)
    survive = top
    for i in range(k - 2, -1, -1):
        low, high, width = values[i], values[i + 1], levels[i + 1] - levels[i]
        if low >= age:
            total += width * ((low + high) / 2 - age)
            survive += width
        else:
            if high > age:
                share = (high - age) / (high - low)
                total += width * share * (high - age) / 2
                survive += width * share
            return total / survive
    return total + levels[0] * (values[0] - age)


@njit(cache=True)
def longest_call(replicas):  # type: ignore[no-untyped-def]
    """Most tokens of a call that some replica could hold."""
    longest = 0.0
    for r in range(replicas.shape[1]):
        longest = max(longest, min(replicas[CONTEXT, r], replicas[KV_CAPACITY, r]))
    return longest


@njit(cache=True)
def spread_constants(replicas, kinds, constants, mean_logs, log_speeds):  # type: ignore[no-untyped-def]
    """Write a, b, c and p of every replica: those of its kind (kinds, 4) at its own speed; zeros are not written."""
    for r in range(replicas.shape[1]):
        set_constants(replicas, r, kinds, constants, np.exp(log_speeds[r] - mean_logs[kinds[r]]))


@njit(cache=True)
def set_constants(replicas, r, kinds, constants, speed):  # type: ignore[no-untyped-def]
    """Write a, b, c and p of one replica at its own speed; zeros are not written."""
    kind = kinds[r]
    if constants[kind].any():
        for i in range(4):
            replicas[A + i, r] = constants[kind, i] / speed


@njit(cache=True)
def mean_constants(replicas):  # type: ignore[no-untyped-def]
    """Means over all replicas of a, b and p."""
    a = b = p = 0.0
    for r in range(replicas.shape[1]):
        a += replicas[A, r]
        b += replicas[B, r]
        p += replicas[P, r]
    count = replicas.shape[1]
    return a / count, b / count, p / count


@njit(cache=True)
def mark_due(waiting, line, length, overtakes, since_s, found):  # type: ignore[no-untyped-def]
    """Mark those that are due or become so now, of the first `length` of `line`, rows of `waiting` in order.

    found : their places, out; returns how many there are
    """
    count = 0
    for place in range(length):
        row = waiting[line[place]]
        if row[W_DUE] < 0 or row[W_OVERTAKEN] >= overtakes or row[W_SINCE] <= since_s[int(row[W_LEVEL])]:
            row[W_DUE] = SKIP
            found[count] = place
            count += 1
    return count


@njit(cache=True)
def overtake(waiting, line, length):  # type: ignore[no-untyped-def]
    """Those of the first `length` rows in `line` were overtaken once more."""
    for place in range(length):
        waiting[line[place], W_OVERTAKEN] += 1


@njit(cache=True)
def refresh(replicas, flights, count, begin, rows, levels, now):  # type: ignore[no-untyped-def]
    """Bring N, KV, REMAINING and TAU of every replica up to date.

    A decoding call's age is extrapolated from its last report at the replica's current speed; its need is its held
    prompt and half of what it is now expected to produce. Of `count` flights, `rows` from row `begin` on and around
    are looked at; the others keep what was last found. Returns (free slots of usable replicas, most slots of any).
    """
    for step in range(min(rows, count)):
        i = (begin + step) % count
        r = int(flights[i, F_REPLICA])
        age = flights[i, F_AGE]
        if flights[i, F_DECODING] > 0 and replicas[TAU, r] > 0:
            age += max(0.0, now - flights[i, F_AGE_AT]) / replicas[TAU, r]
        rest = remaining_mean(levels, flights[i, FLIGHT_COLUMNS:], flights[i, F_EXCESS], age)
        cap = min(replicas[CONTEXT, r], replicas[KV_CAPACITY, r])
        rest = min(rest, max(cap - flights[i, F_PROMPT] - age, 0.0))  # where the engine will cut it at the latest
        need = flights[i, F_PROMPT] + (age + rest) / 2
        replicas[MINE_REST, r] += rest - flights[i, F_REST]
        replicas[MINE_NEED, r] += need - flights[i, F_NEED]
        flights[i, F_REST] = rest
        flights[i, F_NEED] = need
    r_count = replicas.shape[1]
    total = 0.0
    for r in range(r_count):
        total += replicas[MINE_REST, r]
    pool_rest = total / count if count > 0 else 0.0
    free, most = 0.0, 0.0
    for r in range(r_count):
        other = replicas[OTHER, r]
        replicas[N, r] = replicas[MINE, r] + other
        replicas[REMAINING, r] = max(replicas[MINE_REST, r], 0.0) + other * pool_rest
        reported = replicas[REPORTED_KV, r] + replicas[SENT_SINCE_KV, r]
        replicas[KV, r] = max(replicas[MINE_NEED, r] + replicas[OTHER_KV, r], reported)
        n = min(max(replicas[N, r], 1.0), replicas[SLOTS, r])
        kv = min(replicas[KV, r], replicas[KV_CAPACITY, r])
        replicas[TAU, r] = replicas[A, r] + replicas[B, r] * n + replicas[C, r] * kv
        most = max(most, replicas[SLOTS, r])
        if replicas[USABLE, r] > 0:
            free += max(replicas[SLOTS, r] - replicas[N, r], 0.0)
    return free, most


@njit(cache=True, inline="always")
def cost_terms(replicas, r, rn, rkv, rw, x, x_own, need, prefill_tokens, now, prefix_weight):  # type: ignore[no-untyped-def]
    """(own finish, harm to the running, releases to wait for, first token) of a call on replica r, after reservations.

    Releases are a count, the others seconds; those to the first token are part of the own finish.
    """
    n, slots, kv, cap = replicas[N, r], replicas[SLOTS, r], replicas[KV, r], replicas[KV_CAPACITY, r]
    count = n + rn
    running = min(n, slots)
    releases = max(0.0, count + 1.0 - slots)
    short = need - (cap - kv - rkv)
    if short > 0 and count > 0:
        releases = max(releases, short * count / max(1.0, kv + rkv))
    mean_rest = (replicas[REMAINING, r] + rw) / max(1.0, count)
    tau = replicas[A, r] + replicas[B, r] * min(count + 1.0, slots) + replicas[C, r] * min(kv + rkv + need, cap)
    prefill = prefix_weight * replicas[P, r] * prefill_tokens
    first = max(0.0, replicas[STALL_UNTIL, r] - now) + releases * mean_rest * tau / max(1.0, running) + prefill
    harm = running * (prefill + (replicas[B, r] + replicas[C, r] * need) * min(x, mean_rest))
    return first + x_own * tau, harm, releases, first


@njit(cache=True)
def costs(replicas, row, blocked, live, cached, now, prefix_weight, out):  # type: ignore[no-untyped-def]
    """Fill out (4, R) with the terms of one waiting row; infinite where it cannot run."""
    for r in range(replicas.shape[1]):
        cap = min(replicas[CONTEXT, r], replicas[KV_CAPACITY, r])
        prompt = row[W_PROMPT]
        if replicas[USABLE, r] <= 0 or prompt + 1 > cap or (blocked.size > 0 and blocked[r]):
            out[0, r] = out[1, r] = out[2, r] = out[3, r] = np.inf
            continue
        x = min(row[W_MEAN], row[W_LIMIT], cap - prompt)
        x_own = min(row[W_OWN], row[W_LIMIT], cap - prompt)
        held = live[r] if live.size > 0 else 0.0
        hit = cached[r] if cached.size > 0 else 0.0
        need = prompt - held + x / 2
        out[0, r], out[1, r], out[2, r], out[3, r] = cost_terms(
            replicas, r, 0.0, 0.0, 0.0, x, x_own, need, prompt - max(hit, held), now, prefix_weight
        )
