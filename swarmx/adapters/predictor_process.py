"""A predictor in a process of its own, so that reading prompts and making decisions do not wait for one another.

The child is asked over a pair of sockets, one batch at a time, and ends when its parent does. While there is none,
because it is starting, has died or hangs, the parent predicts by itself: nothing but time depends on the child.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from swarmx.children import command_of
from swarmx.errors import BadInput
from swarmx.predict.runtime import Grids, Predictor
from swarmx.types import Call, Prediction

log = logging.getLogger(__name__)
HANGS_S = 5.0  # a child that has not answered for so long is replaced
AGAIN_S = 5.0  # from the start of one child to that of the next
ENDS_S = 1.0  # for a child to end by itself


class PredictorProcess:
    """Predicts as `Predictor` does, from one thread at a time.

    predictor : of `directory`; it knows the tiers below the network, and stands in for the child
    """

    def __init__(self, predictor: Predictor, directory: Path) -> None:
        self.predictor, self.directory, self.version = predictor, directory, predictor.version
        self._busy = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None
        self._ready = self._closed = False
        self._started_s = -AGAIN_S
        self._start()

    @classmethod
    def load(cls, directory: Path) -> PredictorProcess:
        """Raises BadInput when the directory holds no whole model."""
        return cls(Predictor.load(directory), directory)

    def predict(self, calls: Sequence[Call]) -> list[Prediction]:
        """One prediction per call, whatever the calls hold and whatever has become of the child."""
        with self._busy:
            grids = self._asked(calls)
        return self.predictor.predict(calls) if grids is None else self.predictor.told(calls, grids)

    def fallback_for(self, calls: Sequence[Call]) -> list[Prediction]:
        """The tier below the network, from any thread, without the child."""
        return self.predictor.fallback_for(calls)

    def close(self) -> None:
        """End the child. Predictions are made here from now on."""
        with self._busy:
            self._closed = True
            self._end()

    @property
    def beside(self) -> bool:
        """Whether the child answers now."""
        return self._ready

    # ---- the child ----

    def _asked(self, calls: Sequence[Call]) -> Grids | None:
        """The child's answer; None where there is none."""
        try:
            if self._line is None or not (self._ready or self._greeted(self._line)):
                return None
            self._line.send(list(calls))
            if not self._line.poll(HANGS_S):
                raise TimeoutError(f"no answer in {HANGS_S:g} s")
            found: Grids | None = self._line.recv()
            return found
        except RecursionError:  # a prompt that is nested too deep to be sent; the child knows nothing of it
            return None
        except (OSError, EOFError) as problem:
            log.warning("the predictor's process is replaced: %s", problem or type(problem).__name__)
            self._end()
            return None
        finally:
            if self._line is None:
                self._start()

    def _greeted(self, line: Connection) -> bool:
        """Whether the child has said that it is ready, for the model that is in use here."""
        if not line.poll(0):
            return False
        version = line.recv()
        if version != self.version:
            raise OSError(f"it found version {version} in {self.directory}, where {self.version} is in use")
        self._ready = True
        return True

    def _start(self) -> None:
        if self._closed or time.monotonic() - self._started_s < AGAIN_S:
            return
        self._started_s = time.monotonic()
        try:
            here, there = socket.socketpair()
        except OSError as problem:
            log.warning("no line to a process for the predictor: %s", problem)
            return
        patience = struct.pack("ll", int(HANGS_S), int(HANGS_S % 1 * 1e6))
        for waiting in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # a long prompt does not fit into what is buffered
            here.setsockopt(socket.SOL_SOCKET, waiting, patience)
        command = [*command_of(__name__), str(there.fileno()), str(self.directory)]
        with there:
            try:
                self._child = subprocess.Popen(command, pass_fds=(there.fileno(),), stdin=subprocess.DEVNULL)
            except OSError as problem:
                here.close()
                log.warning("no process for the predictor: %s", problem)
                return
        self._line = Connection(here.detach())

    def _end(self) -> None:
        self._ready = False
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._child is not None:
            try:
                self._child.wait(0 if not self._closed else ENDS_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None


def serve(line: Connection, directory: Path) -> None:
    """Answer batches of calls until the line is closed."""
    predictor = Predictor.load(directory)
    predictor.predict([Call("", "", 0.0, "Read it once.")])  # the first prediction loads what is compiled
    line.send(predictor.version)
    while True:
        calls = line.recv()
        grids = None
        with contextlib.suppress(Exception):  # the parent asks its own, which meets the same
            grids = predictor.grids(calls)
        line.send(grids)


def main() -> int:
    """The child's. Arguments: SOCKET DIRECTORY."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the parent, whose end ends this
    with contextlib.suppress(EOFError, ConnectionError):
        try:
            serve(Connection(int(sys.argv[1])), Path(sys.argv[2]))
        except BadInput as problem:  # the parent has read it a moment ago; it starts another one
            log.warning("%s", problem)
            return 1
    return 0
