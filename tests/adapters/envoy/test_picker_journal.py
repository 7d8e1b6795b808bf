"""The picker's records on a disk that is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swarmx.adapters.envoy.counters import Counters
from swarmx.adapters.envoy.journal import Journal
from swarmx.types import CallRecord

RECORD = CallRecord("1", "m", 0.0, "ok", finished_s=1.0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("ending", ["flush", "close"])
def test_records_that_a_full_disk_refuses_when_they_are_flushed_are_counted(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"calls-19700101T000000-{os.getpid()}-0001.jsonl.open").symlink_to("/dev/full")
    counters = Counters()
    journal = Journal(tmp_path, counters, clock=lambda: 0.0)
    journal.add(RECORD)
    journal.add(RECORD)
    getattr(journal, ending)()
    assert counters.total("dropped_records") == 2
    journal.add(RECORD)  # there is room again
    journal.close()
    assert counters.total("dropped_records") == 2
    assert len((tmp_path / f"calls-19700101T000000-{os.getpid()}-0002.jsonl").read_text().splitlines()) == 1
