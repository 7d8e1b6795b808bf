"""Print the numbers of data/CARD.md from the log itself, as Markdown.

python training/card_numbers.py data/execution_log.parquet
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from swarmx.logs.table import read_log
from swarmx.types import CallRecord

Log = list[CallRecord]


def level_of(record: CallRecord) -> str:
    return record.workflow_id.split("/")[0]


def shape_of(workflow_id: str) -> str:
    return workflow_id.split("/")[1]


def grouped(log: Log, key: Callable[[CallRecord], str]) -> dict[str, Log]:
    groups: dict[str, Log] = defaultdict(list)
    for record in log:
        groups[key(record)].append(record)
    return groups


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row) + " |")
    print()


def quantiles(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.3g}" for value in np.percentile(values, [50, 90, 95, 99])) if len(values) else "-"


def cut(log: Log) -> float:
    return float(np.mean([record.output_tokens >= (record.max_tokens or np.inf) for record in log]))


def in_flight(log: Log) -> tuple[float, float]:
    """(mean number in flight, share of the time with any) between the first arrival and the last end."""
    steps = sorted([(r.arrival_s, 1) for r in log] + [(r.finished_s or r.arrival_s, -1) for r in log])
    times = np.array([time for time, _ in steps])
    count = np.cumsum([change for _, change in steps])[:-1]
    spans = np.diff(times)
    return float(count @ spans / spans.sum()), float(spans[count > 0].sum() / spans.sum())


def levels(log: Log) -> None:
    rows = []
    for level, part in grouped(log, level_of).items():
        span = max(r.finished_s or 0.0 for r in part) - min(r.arrival_s for r in part)
        for device, own in sorted(grouped(part, lambda r: r.device or "").items()):
            mean, busy = in_flight(own)
            first = [r.first_token_s - r.arrival_s for r in own if r.first_token_s is not None]
            waited = float(np.mean([(r.waiting_at_dispatch or 0) > 0 for r in own]))
            rows.append((level, round(span), device, len(own), mean, busy, waited, quantiles(first), quantiles(
                [(r.finished_s or 0.0) - r.arrival_s for r in own])))  # fmt: skip
    head = ("level", "span s", "device", "calls", "mean in flight", "share of time busy", "calls that found a queue")
    table((*head, "first token s p50/90/95/99", "latency s p50/90/95/99"), rows)


def speeds(log: Log) -> None:
    """Decode seconds a token by how many calls were there at dispatch: a rough picture, the fit is in the simulator."""
    rows = []
    for device, own in sorted(grouped(log, lambda r: r.device or "").items()):
        long = [r for r in own if r.output_tokens >= 10 and r.first_token_s is not None and r.finished_s is not None]
        step = {r.call_id: (r.finished_s - r.first_token_s) / (r.output_tokens - 1) for r in long}  # type: ignore[operator]
        for here in range(5):
            these = [step[r.call_id] for r in long if min(r.running_at_dispatch or 0, 4) == here]
            if these:
                rows.append((device, here, len(these), *(float(v) * 1e3 for v in np.percentile(these, [10, 50, 90]))))
    table(("device", "running at dispatch", "calls", "ms a token p10", "p50", "p90"), rows)


def types(log: Log) -> None:
    rows = []
    for kind, own in sorted(
        grouped(log, lambda r: r.type or "").items(), key=lambda g: np.mean([r.output_tokens for r in g[1]])
    ):
        tokens = [r.output_tokens for r in own]
        groups = len({r.prompt_group for r in own})
        rows.append((kind, len(own), groups, float(np.mean(tokens)), quantiles(tokens), f"{cut(own):.1%}",
                     round(float(np.mean([r.prompt_tokens for r in own])))))  # fmt: skip
    table(("type", "calls", "templates", "mean output", "p50/90/95/99", "cut", "mean prompt"), rows)


def workflows(log: Log) -> None:
    """A fan-out succeeded when at least two calls wait for the same one and a later call waits for more than one."""
    rows, total = [], Counter[str]()
    for shape, part in sorted(grouped(log, lambda r: shape_of(r.workflow_id)).items()):
        flows = grouped(part, lambda r: r.workflow_id)
        fans, again, merged = 0, 0, 0
        for own in flows.values():
            children = Counter(r.waits_for for r in own if r.waits_for)
            fan = max(children.values()) >= 2 if children else False
            fans += fan
            merged += fan and any(len(r.waits_for) > 1 for r in own)
            again += any((r.type or "").endswith("_again") for r in own)
        total.update(workflows=len(flows), fans=fans, merged=merged)
        rows.append((shape, len(flows), len(part) / len(flows), fans, merged, again))
    table(("shape", "workflows", "mean calls", "fanned out", "and merged", "needed a repair"), rows)
    print(f"{total['workflows']} workflows, of which {total['fans']} fanned out and {total['merged']} merged.\n")


def explained(log: Log, key: Callable[[CallRecord], str], folds: int = 5) -> tuple[float, float]:
    """R2 of the group's mean log length: within the sample, and for rows left out (folds over rows)."""
    y = np.log1p([r.output_tokens for r in log])
    names = np.array([key(r) for r in log])
    fold = np.random.default_rng(0).integers(folds, size=len(log))

    def r2(train: np.ndarray, test: np.ndarray) -> float:
        means = {name: y[train & (names == name)].mean() for name in np.unique(names[train])}
        guess = np.array([means.get(name, y[train].mean()) for name in names[test]])
        return float(((y[test] - guess) ** 2).sum())

    everything = np.ones(len(log), bool)
    spread = float(((y - y.mean()) ** 2).sum())
    inside = 1 - r2(everything, everything) / spread
    outside = 1 - sum(r2(fold != k, fold == k) for k in range(folds)) / spread
    return inside, outside


def predictability(log: Log) -> None:
    rows = [(name, *explained(log, key)) for name, key in (
        ("type", lambda r: r.type or ""),
        ("template", lambda r: r.prompt_group or ""),
        ("type and device", lambda r: f"{r.type}{r.device}"),
    )]  # fmt: skip
    table(("mean log(1 + output tokens) by", "R2 in sample", "R2 of rows left out"), rows)
    known = [r for r in log if len(r.prompt or "") > 0]
    logs = np.log1p([r.output_tokens for r in known])
    for name, values in (("prompt", [r.prompt_tokens for r in known]),):
        print(f"correlation of log output with log {name} tokens: {np.corrcoef(logs, np.log1p(values))[0, 1]:.2f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the numbers of the log's card.")
    parser.add_argument("log", type=Path)
    given = parser.parse_args()
    log = read_log(given.log)
    ok = [r for r in log if r.status == "ok"]
    tokens = [r.output_tokens for r in ok]
    print(f"{len(log)} calls, {len(ok)} ok; {len({r.workflow_id for r in log})} workflows and single calls; "
          f"{len({r.prompt_group for r in log})} templates; {len({r.type for r in log})} types; "
          f"{max(r.finished_s or 0 for r in log) / 60:.1f} minutes\n")  # fmt: skip
    print(f"output tokens: mean {np.mean(tokens):.1f}, p50/90/95/99 {quantiles(tokens)}, max {max(tokens)}; "
          f"cut at the cap {cut(ok):.1%}; prompt tokens: mean {np.mean([r.prompt_tokens for r in ok]):.0f}, "
          f"of which cached {np.mean([r.cached_tokens for r in ok]):.0f}\n")  # fmt: skip
    for part in (levels, speeds, workflows, types, predictability):
        part(ok)


if __name__ == "__main__":
    main()
