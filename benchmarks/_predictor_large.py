"""A log as large as one likes, made of the shipped one, to see what training on many calls takes.

    python benchmarks/_predictor_large.py --rows 100000 --out /tmp/large.parquet
    /usr/bin/time -v swarmx train /tmp/large.parquet --out /tmp/model

Whole workflows are drawn again and again; each copy's prompts get other words in place of some of theirs, so that no
two texts are equal, and its lengths are moved by a tenth. It says nothing about accuracy.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from swarmx.logs.table import read_log, write_log
from swarmx.types import CallRecord

SHIPPED = Path(__file__).resolve().parent.parent / "data" / "execution_log.parquet"
SWAPPED = 0.1  # share of the words of a copy that are exchanged for others of the log


def large(records: list[CallRecord], rows: int, seed: int) -> list[CallRecord]:
    """At least `rows` records, of whole workflows, one copy beginning a second after the other."""
    rng = np.random.default_rng(seed)
    flows: dict[str, list[CallRecord]] = defaultdict(list)
    for record in records:
        flows[record.workflow_id].append(record)
    known = list(flows.values())
    words = sorted({word for record in records for word in re.findall(r"[a-z]{4,}", record.prompt or "")})
    out: list[CallRecord] = []
    while len(out) < rows:
        flow = known[int(rng.integers(len(known)))]
        begins = float(len(out)) + 1.0 - min(record.arrival_s for record in flow)
        out += [copied(record, f"#{len(out)}", begins, words, rng) for record in flow]
    return out


def copied(record: CallRecord, mark: str, later_s: float, words: list[str], rng: np.random.Generator) -> CallRecord:
    text = re.sub(
        r"[a-z]{4,}",
        lambda word: words[int(rng.integers(len(words)))] if rng.random() < SWAPPED else word[0],
        record.prompt or "",
    )
    names = ("workflow_arrival_s", "arrival_s", "dispatched_s", "first_token_s", "finished_s")
    times = {name: None if (at := getattr(record, name)) is None else at + later_s for name in names}
    longer = max(1, round(record.output_tokens * float(rng.lognormal(0.0, 0.1)))) if record.output_tokens else 0
    return replace(
        record, call_id=record.call_id + mark, workflow_id=record.workflow_id + mark, prompt=f"{text} {mark}",
        prompt_hash=None, parent_id=None if record.parent_id is None else record.parent_id + mark,
        waits_for=tuple(name + mark for name in record.waits_for), output_tokens=longer, **times,
    )  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    found = large(read_log(SHIPPED), chosen.rows, chosen.seed)
    write_log(found, chosen.out)
    print(f"{len(found)} calls written to {chosen.out}")


if __name__ == "__main__":
    main()
