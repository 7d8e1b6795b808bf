"""What handles and queue owners write: records of ended calls and receipts, each process in a directory of its own.

Below the configured directory; `swarmx train` and `swarmx explain --log` read all of it. Records become Parquet files
as in the gateway: when a file is full or old enough, and at a clean end of the process. What a killed one leaves is
turned into a file by the next handle that starts on the same machine.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from swarmx.adapters.gateway.adapting import embedding_of
from swarmx.adapters.gateway.receipts import ReceiptStore
from swarmx.adapters.gateway.records import JOURNAL, RecordLog
from swarmx.adapters.gateway.ticket import stored
from swarmx.adapters.ray_serve.ride import Ride
from swarmx.adapters.settings import LogSettings, PredictorSettings
from swarmx.types import CallRecord

log = logging.getLogger(__name__)
FLUSH_S = 1.0
RECEIPTS = 10_000  # that may wait to be written
ENDED = ".ended"


class Recording:
    """Of one handle. place : directory of its own, see `own_place`; lost : called with the number of lost records

    Making one reads and writes files: do it off the loop. Raises BadInput when the directory cannot be written.
    """

    def __init__(
        self, settings: LogSettings, predictor: PredictorSettings, place: Path, lost: Callable[[int], None]
    ) -> None:
        self.prompt = settings.prompt
        enrich = embedding_of(settings, predictor)
        self.records = RecordLog(place, settings.rotate_records, settings.rotate_s, lost, enrich)
        self.records.start()
        self.receipts = receipts_in(place)
        atexit.register(self.close)

    def write(self, ride: Ride, record: CallRecord) -> None:
        """Take the record of a call that is over."""
        self.records.add(stored(record, ride.call.prompt, self.prompt))

    async def run(self) -> None:
        """Write receipts now and then, off the loop; never returns."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await asyncio.to_thread(self.receipts.flush)

    def close(self) -> None:
        """Write everything."""
        self.records.close()
        self.receipts.flush()


def receipts_in(place: Path) -> ReceiptStore:
    """A store that writes into that directory, which is made."""
    place.mkdir(parents=True, exist_ok=True)
    return ReceiptStore(RECEIPTS, place)


def own_place(directory: Path, *names: str) -> Path:
    """A directory below that no other process writes to; says whose it is."""
    who = "".join(c if c.isalnum() or c in "-_" else "-" for c in "-".join(names))
    return directory / f"{who}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(3)}"


def adopt(directory: Path) -> int:
    """Turn what processes of this machine left behind into Parquet files; returns how many processes that were."""
    found = 0
    for journal in directory.glob(f"*.{socket.gethostname()}.*/{JOURNAL}"):
        place = journal.parent
        if place.suffix == ENDED or _is_alive(place):
            continue
        ended = place.with_name(place.name + ENDED)
        try:
            place.rename(ended)  # only one of several that try can
        except OSError:
            continue
        RecordLog(ended, 1, 1.0).close()
        found += 1
    return found


def _is_alive(place: Path) -> bool:
    try:
        os.kill(int(place.name.split(".")[-2]), 0)
    except (ProcessLookupError, ValueError, IndexError):
        return False
    except PermissionError:
        return True
    return True
