"""Priority inheritance: what a workflow of a better class waits for has that class until it has ended."""

from __future__ import annotations

from collections import OrderedDict

from swarmx.types import PRIORITIES, Call

MAX_WORKFLOWS = 100_000


class Inheritance:
    """Classes of workflows and who waits for whom; 0 is the best class.

    Three ways to inherit: a call from its workflow (a helper call labelled low inside an urgent run), from the workflow
    of its parent call, and from any workflow that was declared to wait for it or for its workflow, over any number of
    steps. A class is only ever raised, and only for as long as the waiting one is there.
    """

    def __init__(self, limit: int = MAX_WORKFLOWS) -> None:
        self.limit = limit
        self._best: OrderedDict[str, int] = OrderedDict()  # workflow -> best class of its calls
        self._owner: OrderedDict[str, str] = OrderedDict()  # call -> workflow
        self._waiters: dict[str, set[str]] = {}  # call or workflow -> workflows that wait for it
        self._waiting: set[str] = set()  # workflows that wait for something

    def arrived(self, call: Call) -> bool:
        """Note a call; True when the class of others may have risen."""
        own = PRIORITIES.index(call.priority)
        before = self._best.get(call.workflow)
        self._best[call.workflow] = own if before is None else min(own, before)
        self._owner[call.id] = call.workflow
        parent = self._owner.get(call.parent_id or "")
        if parent is not None and parent != call.workflow:
            self.waits(parent, call.id)
        for known in (self._best, self._owner):
            if len(known) > self.limit:
                known.popitem(last=False)
        if before is None:
            return call.workflow in self._waiting
        return own < before

    def waits(self, workflow: str, on: str) -> None:
        """A workflow cannot go on before that call or workflow has ended."""
        self._waiters.setdefault(on, set()).add(workflow)
        self._waiting.add(workflow)

    def gone(self, name: str) -> None:
        """A call or workflow has ended: nobody waits for it, and it waits for nobody, any more."""
        self._waiters.pop(name, None)
        self._owner.pop(name, None)
        if name in self._waiting:
            self._waiting.discard(name)
            for waiters in self._waiters.values():
                waiters.discard(name)

    def level(self, call: Call) -> int:
        """Class of the call, inherited ones included."""
        best = min(PRIORITIES.index(call.priority), self._best.get(call.workflow, len(PRIORITIES)))
        seen: set[str] = set()
        left = [call.id, call.workflow]
        while left:
            for workflow in sorted(self._waiters.get(left.pop(), ())):
                if workflow not in seen:
                    seen.add(workflow)
                    best = min(best, self._best.get(workflow, len(PRIORITIES)))
                    left.append(workflow)
        return best
