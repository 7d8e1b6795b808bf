"""A replica's reports to the queue owner: at a call's end from where the call ran, else from a thread.

A slot stands idle until the owner has heard that its call ended, so that report goes out at once; handing it to the
thread first costs a change of threads. Nothing here waits for an answer.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from swarmx.adapters.ray_serve.messages import NAMESPACE, Report, owner_name
from swarmx.adapters.ray_serve.states import Ended

if TYPE_CHECKING:
    from swarmx.adapters.ray_serve.replica import Book, SwarmXReplica

log = logging.getLogger(__name__)
PAUSE_S = 0.005  # ends that come closer together than this travel in one message
ALIVE_S = 1.0  # without news, numbers are sent this often
LOOK_S = 5.0  # how often the owner is looked up, as long as there is none or to notice a new one


class Reporter:
    """Does nothing until `begin`; a deployment without an owner costs a look-up every few seconds."""

    def __init__(self) -> None:
        self._ended: list[Ended] = []
        self._first: list[str] = []
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._owner: Any = None
        self._own = ""
        self._looked_s = self._sent_s = float("-inf")

    def begin(self, replica: SwarmXReplica, book: Book) -> None:
        """Start the thread, once."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    arguments = (replica, book)
                    self._thread = threading.Thread(target=self._run, args=arguments, name="swarmx-report", daemon=True)
                    self._thread.start()

    def add(self, ended: Ended, replica: SwarmXReplica, book: Book) -> None:
        """A call has ended."""
        with self._lock:
            self._ended.append(ended)
        if time.monotonic() - self._sent_s >= PAUSE_S:
            self._send(replica, book)
        else:
            self._news.set()

    def first_token(self, key: str) -> None:
        """A stream has begun; told with the next report."""
        with self._lock:
            self._first.append(key)

    def _send(self, replica: SwarmXReplica, book: Book) -> None:
        owner = self._owner
        if owner is None:
            return
        self._sent_s = time.monotonic()
        with self._lock:
            ended, first = tuple(self._ended), tuple(self._first)
            self._ended.clear()
            self._first.clear()
        try:
            owner.report.remote(Report(self._own, book.stats(replica), first, ended))
        except Exception as problem:  # whatever becomes of Ray, the replica serves
            log.debug("the queue owner could not be told: %s", problem)
            self._looked_s = float("-inf")

    def _run(self, replica: SwarmXReplica, book: Book) -> None:
        from ray import serve

        here = serve.get_replica_context()
        self._own, name = here.replica_id.unique_id, owner_name(here.app_name, here.deployment)
        while True:
            time.sleep(PAUSE_S)
            self._news.wait(ALIVE_S)
            if time.monotonic() - self._looked_s >= LOOK_S:  # there may be one now, or another one
                self._looked_s = time.monotonic()
                self._owner = _look_up(name)
            self._news.clear()
            if self._owner is None:  # nobody wants to know
                with self._lock:
                    self._ended.clear()
                    self._first.clear()
            self._send(replica, book)


def _look_up(name: str) -> Any:
    """The actor, or None."""
    import ray

    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except Exception:  # none of that name, or Ray is going down
        return None
