"""The adaptation loop: finished calls in, a better model out, never a worse one.

    watching --alarm--> training --model--> contest --promote--> probation --keep--> watching
                           |                   |                    |
                           +--failed-----------+--rejected----------+--rolled back--> watching

It reads no clock and touches no file: time is that of the records; the worker that trains and the registry that stores
are handed in, and may fail. While the registry cannot be reached, the champion in use goes on and the step is tried
again. The loop never stands in a request's way: serving processes follow the registry's champion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.adapt.calibration import LayeredCalibration
from swarmx.adapt.contest import COVERED, Contest, Probation, pinball
from swarmx.adapt.events import Event, LoopConfig, Outcome, Rival
from swarmx.adapt.model import Finished, Model
from swarmx.adapt.registry import Registry, RegistryError
from swarmx.adapt.reservoir import Reservoir
from swarmx.adapt.retrain import FEWEST_ROWS, Changed, Job, Plan
from swarmx.adapt.watching import Noticed, Watching
from swarmx.adapt.worker import Result, Worker
from swarmx.adapt.workflows import OpenWorkflows
from swarmx.drift import Group
from swarmx.errors import BadInput
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import CallRecord

Array = NDArray[np.float64]
MOST_EVENTS = 10_000
RETRY = 50  # records between two attempts at a registry that cannot be reached


class AdaptationLoop:
    """load : a model from a directory, raising BadInput when it is not whole; the rest see above"""

    def __init__(
        self, champion: Model, worker: Worker, registry: Registry, load: Callable[[Path], Model],
        config: LoopConfig | None = None,
    ) -> None:  # fmt: skip
        self.config = config or LoopConfig()
        self.champion, self.worker, self.registry, self.load = champion, worker, registry, load
        self.calibration = LayeredCalibration()
        self.watching = Watching(self.config)
        self.reservoir = Reservoir(self.config.rows, self.config.limit_bytes, self.config.half_life, self.config.seed)
        self.workflows = OpenWorkflows(self.config.quiet_s)
        self.rival: Rival | None = None
        self.training = False
        self.events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self.changed: dict[Group, Changed] = {}
        self.seq = self._now = 0
        self.at = 0.0
        self.retrained_seq = -self.config.pause
        self.in_vain = 0
        self._tried: list[Changed] = []  # what the last retraining was for
        self._result: Result | None = None
        self._blocked_seq = -RETRY
        self.watching.begin(champion)

    # ---- records --------------------------------------------------------------------------------------------------

    def observe(self, records: Sequence[CallRecord]) -> list[Outcome]:
        """Finished calls in the order in which they ended; one outcome for each that ended well."""
        pending = self.champion.read(records, self.seq)
        self.seq += len(pending)
        outcomes: list[Outcome] = []
        while pending:
            champion, rival = self.champion, self.rival
            own = champion.tokens(pending)
            other = own if rival is None else rival.model.tokens(pending)
            for i, finished in enumerate(pending):
                outcomes.append(self._one(finished, own[i], other[i]))
                self._act(finished.example.seq, finished.example.finished_s)
                if self.champion is not champion or self.rival is not rival:
                    break  # the rest is predicted by who is in office now
            pending = pending[i + 1 :]
        return outcomes

    def _one(self, finished: Finished, own: Array, other: Array) -> Outcome:
        example = finished.example
        group, grid = example.group, QuantileGrid(LEVELS, own)
        served = self._served(self.calibration, grid, group, example.max_tokens)
        if finished.says_something:
            if self.rival is not None:
                self._compare(self.rival, finished, own, other, served)
            self.calibration.observe(group, grid, example.tokens)
            for noticed in self.watching.see(example, grid):
                self._notice(noticed)
        for closed in self.workflows.add(finished.record, example):
            self.reservoir.add(closed)
        covered = tuple(bool(example.tokens <= served[k]) for k in COVERED)
        losses = pinball(own, example.tokens), pinball(served, example.tokens)
        return Outcome(example.seq, example.finished_s, group, self.champion.version, *losses, covered)

    def _compare(self, rival: Rival, finished: Finished, own: Array, other: Array, served: Array) -> None:
        example = finished.example
        theirs_grid = QuantileGrid(LEVELS, other)
        theirs = self._served(rival.calibration, theirs_grid, example.group, example.max_tokens)
        rival.calibration.observe(example.group, theirs_grid, example.tokens)
        if not example.can_teach and not finished.record.prompt:
            return  # both would answer by type alone
        if isinstance(rival.trial, Contest):
            rival.trial.add(own, other, (served, theirs), example.tokens)
        else:
            rival.trial.add(served, theirs, example.tokens)

    @staticmethod
    def _served(calibration: LayeredCalibration, grid: QuantileGrid, group: Group, most: float) -> Array:
        values: Array = np.minimum(calibration.corrected(grid, group).values, most)
        return values

    def _notice(self, noticed: Noticed) -> None:
        changed = noticed.changed
        if self.underway and changed.seq <= self.retrained_seq:
            self._tried.append(changed)  # the challenger has learned from it already
        else:
            self.changed[changed.group] = changed
        self._tell(noticed.kind, self.champion.version, noticed.detail)

    def poll(self) -> None:
        """Look at the worker although no record has come."""
        self._act(self._now, self.at)

    # ---- decisions ------------------------------------------------------------------------------------------------

    def _act(self, seq: int, at: float) -> None:
        """What the record at hand gives reason for; at most one step."""
        self.at = at
        self._now = seq
        if seq - self._blocked_seq < RETRY:
            return
        try:
            if self.training or self._result is not None:
                self._look_at_worker()
            elif self.rival is not None:
                self._judge(self.rival)
            elif self._wants_training(seq):
                self._train(seq)
        except BadInput as problem:  # a version that is not whole; whoever made it must make it again
            self._result = None
            self._failed(str(problem))
        except RegistryError as problem:
            self._blocked_seq = seq
            self._tell("registry", "", {"reason": str(problem)})

    def _wants_training(self, seq: int) -> bool:
        pause = self.config.pause * 2 ** min(self.in_vain, 6)
        if not self.champion.can_learn or seq - self.retrained_seq < pause or len(self.reservoir) < FEWEST_ROWS:
            return False
        if self.changed:
            return seq - min(changed.alarmed for changed in self.changed.values()) >= self.config.fresh
        return self.config.every is not None and seq - self.retrained_seq >= self.config.every

    def _train(self, seq: int) -> None:
        for example in self.workflows.over(self.at):
            self.reservoir.add(example)
        examples, weights = self.reservoir.draw()
        changed = sorted(self.changed.values(), key=lambda c: c.group)
        reason = changed[0].reason if changed else f"{self.config.every} calls since the last retraining"
        plan = self.config.plan or Plan.of(len(examples), self.config.seed)
        job = Job(examples, weights, self.champion.directory, changed, reason, plan)
        self.retrained_seq = seq
        try:
            self.worker.start(job)
        except OSError as problem:
            self._failed(f"the trainer cannot be started: {problem}")
            return
        self.training = True
        self._tried, self.changed = list(changed), {}
        groups = [list(c.group) for c in changed]
        self._tell("retrain", self.champion.version, {"reason": reason, "examples": len(examples), "groups": groups})

    def _look_at_worker(self) -> None:
        result = self._result or self.worker.poll()
        if result is None:
            return
        self.training, self._result = False, result
        if result.directory is None:
            self._result = None
            self._failed(result.problem)
            return
        about = {"reason": "retrained", "window": [0, self.retrained_seq], "cpu_s": round(result.cpu_s, 1)}
        version = self.registry.add(result.directory, about | {"peak_mb": result.peak_bytes >> 20})
        self.registry.set("challenger", version, about)
        self._result = None
        self._challenge(version, about)

    def _challenge(self, version: str, about: dict[str, Any]) -> None:
        if version == self.champion.version:
            return
        try:
            model = self.load(self.registry.path(version))
        except BadInput as problem:
            self._failed(str(problem))
            self.registry.set("challenger", None, {"reason": str(problem)})
            return
        self.rival = Rival(model, Contest(self.config.alpha, self.config.margin, self.config.most))
        self._tell("challenger", version, about)

    def _judge(self, rival: Rival) -> None:
        verdict, report = rival.trial.verdict(), rival.trial.report()
        hopeless = isinstance(rival.trial, Contest) and rival.trial.better.log < 1
        if verdict == "undecided" and hopeless and self._wants_training(self._now):
            self.registry.set("challenger", None, {"reason": "another drift came after its training"})
            self.rival = None
            self._take_back()
            self._tell("rejected", rival.model.version, report | {"reason": "overtaken"})
            return
        if verdict == "promote":
            about = {"reason": "better on records neither was trained on", "metrics": report}
            self.registry.set("champion", rival.model.version, about)
            self._promoted(rival, about)
        elif verdict == "reject":
            self.registry.set("challenger", None, {"reason": "not proven better", "metrics": report})
            self.rival = None
            self._tell("rejected", rival.model.version, report)
            self._in_vain()
        elif verdict == "keep":
            self.rival, self.in_vain = None, 0
            self._tell("kept", self.champion.version, report)
        elif verdict == "roll_back":
            about = {"reason": "worse than the former champion after promotion", "metrics": report}
            self.registry.set("champion", rival.model.version, about)
            worse = self.champion.version
            self._take_over(rival.model, rival.calibration)
            self.rival = None
            self._tell("rolled_back", worse, about)
            self._in_vain()

    def _promoted(self, rival: Rival, about: dict[str, Any]) -> None:
        former = Rival(self.champion, Probation(self.config.window, self.config.alpha), self.calibration)
        self._take_over(rival.model, rival.calibration)
        self.rival = former
        self._tell("promoted", rival.model.version, about)
        self.registry.set("challenger", None, {"reason": "promoted"})

    def _take_over(self, model: Model, calibration: LayeredCalibration) -> None:
        """What was noted about the former model is over."""
        self.champion, self.calibration = model, calibration
        self.changed.clear()
        self.watching.begin(model)

    def _failed(self, problem: str) -> None:
        self._tell("failed", "", {"reason": problem})
        self._in_vain()

    def _in_vain(self) -> None:
        """The drift is still there: another retraining, with more fresh calls, after a longer pause."""
        self.in_vain += 1
        self._take_back()
        if self.in_vain == self.config.failures:
            reason = f"{self.in_vain} retrainings of the heads did not help; train a new encoder"
            self._tell("encoder", "", {"reason": reason})

    def _take_back(self) -> None:
        """What the last retraining was for is to be learned again."""
        for changed in self._tried:
            self.changed.setdefault(changed.group, changed)

    def _tell(self, kind: str, version: str, detail: dict[str, Any]) -> None:
        self.events.append(Event(self._now, self.at, kind, version, detail))

    @property
    def underway(self) -> list[Changed]:
        """The drifts that the retraining under way, or the challenger it made, is for."""
        return self._tried if self.training or self.rival is not None else []

    # ---- what others have done ------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Follow the registry: a champion that somebody else set, a challenger that somebody put up.

        Raises RegistryError when it cannot be reached, BadInput when the champion there is not whole.
        """
        version = self.registry.get("champion")
        self._now = self.seq
        if version is not None and version != self.champion.version:
            self._take_over(self.load(self.registry.path(version)), LayeredCalibration())
            self.rival = None
            self._tell("champion", version, {"reason": "set in the registry"})
        wanted = self.registry.get("challenger")
        if wanted is not None and self.rival is None and not self.training and wanted != self.champion.version:
            self._challenge(wanted, {"reason": "put up in the registry"})
