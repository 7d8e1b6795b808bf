"""Schedulers of a few lines that the simulator's tests drive: nothing of swarmx's own scheduler is in them."""

from collections import deque

from swarmx.types import Start


class Silent:
    """Does nothing; the others override what they need."""

    tick_s = 1e9

    def arrive(self, call, prediction, now):
        return []

    def predicted(self, call_id, prediction, now):
        return []

    def started(self, call_id, now):
        return []

    def progress(self, call_id, tokens, now):
        return []

    def finished(self, record, now, retry=False):
        return []

    def refused(self, call_id, state, now):
        return []

    def replicas_changed(self, states, now):
        return []

    def tick(self, now):
        return []


class CentralFcfs(Silent):
    """One queue; the first waiting call starts on any free slot."""

    def __init__(self):
        self.waiting, self.free = deque(), deque()

    def replicas_changed(self, states, now):
        self.free = deque(s.id for s in states for _ in range(s.slots))
        return self.go()

    def go(self):
        return [
            Start(self.waiting.popleft(), self.free.popleft()) for _ in range(min(len(self.waiting), len(self.free)))
        ]

    def arrive(self, call, prediction, now):
        self.waiting.append(call.id)
        return self.go()

    def finished(self, record, now, retry=False):
        self.free.append(record.replica)
        return self.go()


class LeastWorkLeft(Silent):
    """Immediate dispatch with true lengths: the replica that would be free first, all speeds 1."""

    def __init__(self):
        self.free_at = {}

    def replicas_changed(self, states, now):
        self.free_at = {s.id: 0.0 for s in states}
        return []

    def arrive(self, call, prediction, now):
        replica = min(self.free_at, key=lambda r: (max(self.free_at[r], now), r))
        self.free_at[replica] = max(self.free_at[replica], now) + float(prediction.tokens.mean())
        return [Start(call.id, replica)]


class InTurn(Silent):
    """Round robin at arrival; a call that comes back is sent on."""

    def __init__(self):
        self.ids, self.turn, self.seen = [], 0, []

    def replicas_changed(self, states, now):
        self.ids = [s.id for s in states]
        return []

    def send(self, call_id):
        self.turn += 1
        return [Start(call_id, self.ids[self.turn % len(self.ids)])]

    def arrive(self, call, prediction, now):
        self.seen.append(("arrive", call.id, now))
        return self.send(call.id)

    def started(self, call_id, now):
        self.seen.append(("started", call_id, now))
        return []

    def finished(self, record, now, retry=False):
        self.seen.append((record.status, record.call_id, now))
        return self.send(record.call_id) if retry else []
