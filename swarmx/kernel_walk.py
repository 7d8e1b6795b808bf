"""The compiled walk of `late`: see `swarmx.late` for what it does and why.

Which replicas a call looks at is given by `order`: replicas grouped by device kind, each group sorted by what a typical
call would cost there. With few replicas a group is all there are and everything is looked at; with many only the first
`width` of each group are, and a replica moves back in its group as it fills. Replicas of a kind differ in state alone,
so the cheapest of a kind for a typical call is among the cheapest for any.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from swarmx.kernel import (
    CONTEXT,
    KV_CAPACITY,
    SLOTS,
    USABLE,
    W_DUE,
    W_LIMIT,
    W_MEAN,
    W_OWN,
    W_PIN,
    W_PROMPT,
    N,
    cost_terms,
)


@njit(cache=True)
def sort_groups(replicas, reserved, order, starts, keys, typical, now, lam, ww):  # type: ignore[no-untyped-def]
    """Sort each group of `order` by the cost of a typical call (its output tokens and KV need).

    keys : (R,) out: these costs, in the same order
    Between two walks few replicas change places, so insertion is the quickest way. Ties go to the first replica.
    """
    for g in range(starts.size - 1):
        for j in range(starts[g], starts[g + 1]):
            r = order[j]
            key = _key(replicas, reserved, r, typical, now, lam, ww)
            while j > starts[g] and (key < keys[j - 1] or (key == keys[j - 1] and r < order[j - 1])):
                order[j], keys[j] = order[j - 1], keys[j - 1]
                j -= 1
            order[j], keys[j] = r, key


@njit(cache=True, inline="always")
def _key(replicas, reserved, r, typical, now, lam, ww):  # type: ignore[no-untyped-def]
    if replicas[USABLE, r] <= 0:
        return np.inf
    x, need = typical
    own, harm, _, first = cost_terms(
        replicas, r, reserved[0, r], reserved[1, r], reserved[2, r], x, x, need, 0.0, now, 0.0
    )
    return own + (ww - 1.0) * first + lam * harm


@njit(cache=True)
def resort(replicas, reserved, order, starts, kinds, keys, r, typical, now, lam, ww):  # type: ignore[no-untyped-def]
    """Replica r has become dearer: compute its key anew and move it back to its place in its group."""
    j, end = starts[kinds[r]], starts[kinds[r] + 1]
    while order[j] != r:
        j += 1
    key = _key(replicas, reserved, r, typical, now, lam, ww)
    later = keys[j + 1 : end]
    count = 0
    while count < later.size and later[count] < key:
        count += 1
    _move_up(order[j : j + count + 1])
    _move_up(keys[j : j + count + 1])
    order[j + count], keys[j + count] = r, key


@njit(cache=True, inline="always")
def _move_up(values):  # type: ignore[no-untyped-def]
    """All but the first, by one place."""
    for i in range(values.size - 1):
        values[i] = values[i + 1]


@njit(cache=True, inline="always")
def _emptier(replicas, r, best):  # type: ignore[no-untyped-def]
    """Whether a tie goes to replica r: to the one filled less, then to the first."""
    if best < 0:
        return True
    fill, least = replicas[N, r] / replicas[SLOTS, r], replicas[N, best] / replicas[SLOTS, best]
    return fill < least or (fill == least and r < best)


@njit(cache=True)
def walk(  # type: ignore[no-untyped-def]
    replicas, waiting, line, begin, left, blocked, live, cached, reserved, order, starts, kinds, keys, width, typical,
    now, lam, prefix_weight, ww, pins,
):  # fmt: skip
    """Go through waiting calls in order from place `begin`, up to the first that starts.

    A call whose cheapest replica can take it now starts there. Any other reserves a place on its cheapest replica, for
    the rest of this walk, and stays unbound.

    waiting : (*, WAITING_COLUMNS); line : (W,) rows of it in order
    left : so many calls that could run somewhere are looked at
    blocked, live, cached : (W, R) or empty: not allowed there; prompt tokens held by running calls; tokens in its cache
    reserved : (3, R) calls, KV tokens and output tokens reserved in this walk so far; changed in place
    lam, prefix_weight, ww : weights of harm, of prefill, and of the seconds before the first token
    order, starts, kinds, keys, width : replicas by group, and each one's; changed in place where width is below R
    pins : (W,) out: the replica that a held call reserved, -1 where it can run nowhere now; not filled when empty
    Returns (place, replica, looked at) of the start, or (W, -1, looked at) when none is left to start; looked at, the
    number of calls that could run somewhere now, is -1 when no replica has a free slot.
    """
    r_count = replicas.shape[1]
    open_slots = False
    for r in range(r_count):
        if replicas[USABLE, r] > 0 and replicas[N, r] < replicas[SLOTS, r]:
            open_slots = True
            break
    if not open_slots:
        return line.size, -1, -1
    looked = 0
    for i in range(begin, line.size):
        if looked >= left:
            break
        call = waiting[line[i]]
        if pins.size > 0:
            pins[i] = -1
        if call[W_DUE] < 0:
            continue
        prompt = call[W_PROMPT]
        due = call[W_DUE] > 0
        best, best_cost, best_k = -1, np.inf, 0.0
        own_best, own_value = -1, np.inf  # argmin of own finish
        free_best, free_value = -1, np.inf  # argmin of own finish among those that can start now
        pin = int(call[W_PIN])
        pin_own = np.inf
        for g in range(starts.size):
            if g < starts.size - 1:
                first, last = starts[g], min(starts[g] + width, starts[g + 1])
            else:  # beyond the groups: those that hold its prefix, and a due call's pin
                first, last = 0, (r_count if width < r_count and (cached.size > 0 or due) else 0)
            for j in range(first, last):
                r = order[j] if g < starts.size - 1 else j
                if g == starts.size - 1 and r != pin and (cached.size == 0 or cached[i, r] <= 0):
                    continue
                cap = min(replicas[CONTEXT, r], replicas[KV_CAPACITY, r])
                if replicas[USABLE, r] <= 0 or prompt + 1 > cap or (blocked.size > 0 and blocked[i, r]):
                    continue
                x = min(call[W_MEAN], call[W_LIMIT], cap - prompt)
                x_own = min(call[W_OWN], call[W_LIMIT], cap - prompt)
                held = live[i, r] if live.size > 0 else 0.0
                hit = cached[i, r] if cached.size > 0 else 0.0
                own, harm, k, first_s = cost_terms(
                    replicas,
                    r,
                    reserved[0, r],
                    reserved[1, r],
                    reserved[2, r],
                    x,
                    x_own,
                    prompt - held + x / 2,
                    prompt - max(hit, held),
                    now,
                    prefix_weight,
                )
                cost = own + (ww - 1.0) * first_s + lam * harm
                if cost < best_cost or (cost == best_cost and _emptier(replicas, r, best)):
                    best, best_cost, best_k = r, cost, k
                if due:
                    if own < own_value:
                        own_best, own_value = r, own
                    if k == 0 and own < free_value:
                        free_best, free_value = r, own
                    if r == pin:
                        pin_own = own
        if best < 0:
            continue
        looked += 1
        target, k = best, best_k
        if due:
            if pin_own == np.inf:
                pin, pin_own = own_best, own_value
            if free_best >= 0 and free_value <= pin_own:
                target, k = free_best, 0.0
            else:
                target, k = pin, 1.0
        if pins.size > 0:
            pins[i] = target
        if k == 0:
            return i, target, looked
        cap = min(replicas[CONTEXT, target], replicas[KV_CAPACITY, target])
        x = min(call[W_MEAN], call[W_LIMIT], cap - prompt)
        held = live[i, target] if live.size > 0 else 0.0
        reserved[0, target] += 1
        reserved[1, target] += prompt - held + x / 2
        reserved[2, target] += x
        if width < r_count:
            resort(replicas, reserved, order, starts, kinds, keys, target, typical, now, lam, ww)
    return line.size, -1, looked
