"""The log in data/ is what its card says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from swarmx.logs.check import check_log
from swarmx.logs.table import read_log
from swarmx.types import CallRecord

ROOT = Path(__file__).parents[2]
LOG = ROOT / "data" / "execution_log.parquet"


@pytest.fixture(scope="module")
def log() -> list[CallRecord]:
    return read_log(LOG)


def test_it_passes_its_own_checks(log: list[CallRecord]) -> None:
    assert [check.name for check in check_log(log) if check.outcome == "failed"] == []


def test_it_is_large_varied_and_hardly_cut(log: list[CallRecord]) -> None:
    assert len(log) >= 2000
    assert {record.device for record in log} == {"cpu-q8_0", "cpu-f32"}
    assert {record.workflow_id.split("/")[0] for record in log} == {"idle", "busy", "queueing"}
    assert sum(record.output_tokens >= (record.max_tokens or 0) for record in log) <= 0.1 * len(log)
    assert len({record.prompt for record in log}) > 0.99 * len(log)


def test_hundreds_of_workflows_fanned_out_and_merged(log: list[CallRecord]) -> None:
    flows: dict[str, list[CallRecord]] = defaultdict(list)
    for record in log:
        flows[record.workflow_id].append(record)
    fanned = [
        calls
        for calls in flows.values()
        if max(Counter(c.waits_for for c in calls if c.waits_for).values(), default=0) >= 2
        and any(len(c.waits_for) > 1 for c in calls)
    ]
    assert len(fanned) >= 300


def test_no_prompt_of_our_own_holds_a_digit(log: list[CallRecord]) -> None:
    own = [record.prompt or "" for record in log if not record.waits_for]  # the others quote answers of the model
    assert len(own) >= 800 and not any(re.search(r"\d", prompt) for prompt in own)


@pytest.mark.slow
def test_the_card_shows_the_numbers_of_the_log() -> None:
    command = [sys.executable, str(ROOT / "training" / "card_numbers.py"), str(LOG), "--quick"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    card = (ROOT / "data" / "CARD.md").read_text(encoding="utf-8")
    lines = [line for line in printed.splitlines() if line]
    missing = [line for line in lines if line.replace("3000 calls, 3000 ok;", "3,000 calls, all ok;") not in card]
    assert missing == []
