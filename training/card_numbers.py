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


def held_out(fold: np.ndarray, y: np.ndarray, guess: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
    """R2 of `guess(train, test)` over the folds, against the mean of the rows trained on."""
    errors = spread = 0.0
    for k in np.unique(fold):
        train, test = fold != k, fold == k
        errors += float(((y[test] - guess(train, test)) ** 2).sum())
        spread += float(((y[test] - y[train].mean()) ** 2).sum())
    return 1 - errors / spread


def group_means(names: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def guess(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        means = {name: y[train & (names == name)].mean() for name in np.unique(names[train])}
        return np.array([means.get(name, y[train].mean()) for name in names[test]])

    return guess


def words_of(texts: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Ridge regression on TF-IDF of words and word pairs: what a bag of words can see."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    def guess(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True), RidgeCV(np.logspace(-1, 2, 7))
        )
        return np.asarray(model.fit(texts[train], y[train]).predict(texts[test]))

    return guess


def predictability(log: Log, with_words: bool) -> None:
    """How much of the variance of log(1 + output tokens) the template, the type and the words explain."""
    y = np.log1p([r.output_tokens for r in log])
    types, groups = np.array([r.type for r in log]), np.array([r.prompt_group for r in log])
    texts = np.array([r.prompt for r in log])
    rng = np.random.default_rng(0)
    rows = rng.integers(5, size=len(log))
    order = {name: k % 5 for k, name in enumerate(rng.permutation(np.unique(groups)))}
    templates = np.array([order[name] for name in groups])
    means = group_means(groups, y)
    everything = np.ones(len(log), bool)
    inside = 1 - float(((y - means(everything, everything)) ** 2).mean() / y.var())
    print(
        f"share of the variance of log(1 + output tokens) between templates: {inside:.2f}, within: {1 - inside:.2f}\n"
    )
    kinds = group_means(types, y)
    shown: list[tuple[object, ...]] = [
        ("mean of the type", held_out(rows, y, kinds), held_out(templates, y, kinds)),
        ("mean of the template", held_out(rows, y, means), "-"),
    ]
    if with_words:
        bag = words_of(texts, y)
        shown.append(("ridge on TF-IDF", held_out(rows, y, bag), held_out(templates, y, bag)))
    table(("R2 of log(1 + output tokens), 5 folds", "rows left out", "templates left out"), shown)
    sizes = [int(np.sum(templates == k)) for k in range(5)]
    middle = [f"{np.median(np.expm1(y[templates == k])):.0f}" for k in range(5)]
    print(f"the five parts by template: {sizes} calls, median output {', '.join(middle)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the numbers of the log's card.")
    parser.add_argument("log", type=Path)
    parser.add_argument("--quick", action="store_true", help="leave out the regression on words (half a minute)")
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
    for part in (levels, speeds, workflows, types):
        part(ok)
    predictability(ok, not given.quick)


if __name__ == "__main__":
    main()
