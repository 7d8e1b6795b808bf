"""Who is told what happens to calls: the discipline, admission, the fairness accounts, inheritance of classes."""

from __future__ import annotations

from dataclasses import dataclass, field

from swarmx.admission import Gate
from swarmx.fairness import Account, Ledger
from swarmx.inheritance import Inheritance
from swarmx.ordering import Hooks
from swarmx.ordering.shut_out import ShutOut
from swarmx.sharing import Sharing
from swarmx.types import Call
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Observers:
    """One call per event. Tokens are what the call has produced in all; disciplines hear of this attempt's alone.

    ledger, agents : accounts by tenant, and by workflow, which is one run of an agent
    """

    hooks: Hooks
    gate: Gate
    ledger: Ledger
    inheritance: Inheritance | None = None
    sharing: Sharing = field(default_factory=Sharing)
    shut_out: ShutOut = field(default_factory=ShutOut)
    agents: Ledger = field(default_factory=Ledger)

    def entered(self, waiting: Waiting, now: float) -> None:
        """It waits, for the first time or again."""
        self.gate.entered(waiting)
        self.sharing.entered(waiting.call.id, waiting.call.tenant, now)
        self.shut_out.entered(waiting, now)

    def arrived(self, call: Call) -> bool:
        """True when the class of waiting calls may have risen."""
        for account in self._accounts(call):
            account.arrived += 1
        return self.inheritance is not None and self.inheritance.arrived(call)

    def refused(self, waiting: Waiting, now: float) -> None:
        """It was not let in, or given up."""
        for account in self._accounts(waiting.call):
            account.rejected += 1
        self.gate.left(waiting.call.id)
        self.sharing.over(waiting.call.id, waited=True)
        self.shut_out.left(waiting)
        self._over(waiting)
        self.hooks.withdrawn(waiting, now)

    def started(self, waiting: Waiting, now: float) -> None:
        self.hooks.started(waiting, now)
        self.gate.started(waiting.call.id, now)
        self.sharing.started(waiting.call.id, waiting.call.prompt_tokens, now)
        self.shut_out.started(waiting, now)
        for account in self._accounts(waiting.call):
            account.dispatch(now - waiting.since_s)

    def progressed(self, waiting: Waiting, tokens: float, now: float) -> None:
        self.hooks.progressed(waiting, tokens - waiting.attained, now)
        self.sharing.progressed(waiting.call.id, tokens - waiting.attained)
        self.gate.progressed(waiting.call.id, tokens, now)

    def stopped(self, waiting: Waiting, tokens: float, now: float, over: bool) -> None:
        """It left its replica; over: for good, else it waits again."""
        call = waiting.call
        self.hooks.stopped(waiting, max(tokens - waiting.attained, 0.0), now, over)
        self.gate.stopped(call.id)
        self.sharing.stopped(call.id, max(tokens - waiting.attained, 0.0))
        if over:
            self.sharing.over(call.id, waited=False)
            prompt = call.prompt_tokens - waiting.attained
            for account in self._accounts(call):
                account.finish(prompt + tokens, now - waiting.since_s)
            self._over(waiting)
        else:
            self.entered(waiting, now)

    def interrupted(self, waiting: Waiting, tokens: float, now: float) -> None:
        """It was taken off its replica."""
        for account in self._accounts(waiting.call):
            account.interrupted += 1
        self.stopped(waiting, tokens, now, False)

    def withdrawn(self, waiting: Waiting, now: float) -> None:
        self.hooks.withdrawn(waiting, now)
        self.gate.left(waiting.call.id)
        self.sharing.over(waiting.call.id, waited=True)
        self.shut_out.left(waiting)
        self._over(waiting)

    def _accounts(self, call: Call) -> tuple[Account, Account]:
        return self.ledger[call.tenant], self.agents[call.workflow]

    def _over(self, waiting: Waiting) -> None:
        if self.inheritance is not None:
            self.inheritance.gone(waiting.call.id)
