"""Receipts for people to read: of routers, and of scalers."""

from __future__ import annotations

import itertools
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmx.errors import BadInput
from swarmx.scaling.told import is_scaling, moment, receipt_of, told

if TYPE_CHECKING:
    from rich.console import Console

TIMEOUT_S = 10.0
ROUTING = {"action": str, "policy": str, "decided_s": int | float, "reason": str, "tier": str, "candidates": list}


def read_receipts(path: Path, wanted: str | None = None) -> list[dict[str, Any]]:
    """Receipts of a file: one JSON object, a list of them, or one on each line. Raises BadInput naming file and line.

    wanted : keeps those of this id, call or pool
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{path} cannot be read ({problem})") from None
    found: list[dict[str, Any]] = []
    try:
        whole = json.loads(text)
        found = whole if isinstance(whole, list) else [whole]
    except ValueError:
        for number, line in enumerate(text.splitlines(), 1):
            try:
                found += [json.loads(line)] if line.strip() else []
            except ValueError:
                raise BadInput(f"{path}, line {number}: is no JSON; a receipt is one JSON object a line") from None
    if not found:
        raise BadInput(f"{path} holds no receipt")
    if not all(isinstance(row, dict) and "id" in row for row in found):
        raise BadInput(f"{path}: holds something without an id; every receipt has one")
    for row in found:
        _check_routing(path, row)
    return [row for row in found if wanted in (None, row["id"], row.get("call_id"), row.get("pool"))]


def _check_routing(path: Path, row: dict[str, Any]) -> None:
    """A router's receipt has what is printed of it; `receipt_of` says the same of a scaler's."""
    for name, kind in ROUTING.items():
        if not is_scaling(row) and not isinstance(row.get(name), kind):
            raise BadInput(
                f"{path}: receipt {row['id']} has no valid {name!r}; it is no receipt, or of another version"
            )


def ask_gateway(url: str, wanted: str, token_env: str) -> list[dict[str, Any]]:
    """Receipts from a running gateway's administration API, or from an external scaler's pages. Raises BadInput."""
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"--url {url}: must begin with http:// or https://")
    for kind in ("receipts", "explain"):
        where = f"{url.rstrip('/')}/admin/{kind}/{urllib.parse.quote(wanted)}"
        request = urllib.request.Request(where, headers={"Authorization": f"Bearer {os.environ.get(token_env, '')}"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                receipts: list[dict[str, Any]] = json.load(answer)["receipts"]
                return receipts
        except urllib.error.HTTPError as problem:
            if problem.code == 401:
                raise BadInput(f"{url} refused the token in {token_env}") from None
        except (OSError, ValueError, KeyError) as problem:
            raise BadInput(f"{url} did not answer as a gateway does ({problem})") from None
    return _ask_scaler(url, wanted)


def _ask_scaler(url: str, wanted: str) -> list[dict[str, Any]]:
    """Those of an external scaler; none where the address is not one."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/receipts", timeout=TIMEOUT_S) as answer:
            rows: list[dict[str, Any]] = json.load(answer)
    except (OSError, ValueError):
        return []
    return [row for row in rows if wanted in (row["id"], row["pool"])]


def print_receipts(receipts: list[dict[str, Any]], as_json: bool) -> None:
    """One block per decision, in order of time; the same decision taken again and again for a call is told once."""
    if as_json:
        print(json.dumps(receipts, indent=2))
        return
    from rich.console import Console

    console = Console()
    ordered = sorted(receipts, key=lambda row: row.get("decided_s", 0.0))
    for _, same in itertools.groupby(ordered, _decision):
        first, *again = same
        if is_scaling(first):
            _print_scaling(console, first)
        else:
            _print_routing(console, first, again)


def _decision(row: dict[str, Any]) -> tuple[Any, ...]:
    """What is equal in receipts that say the same; every receipt of a scaler says something of its own."""
    if is_scaling(row):
        return (row["id"],)
    return tuple(row.get(key) for key in ("call_id", "action", "replica", "policy", "reason"))


def _print_scaling(console: Console, row: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    found = told(receipt_of(row, f"receipt {row['id']}"))
    console.print(f"[bold]{row['id']}[/bold]  {found.head}", highlight=False)
    for line in found.lines:
        console.print(f"  {line}", highlight=False)
    if found.table:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for i, heading in enumerate(found.table[0]):
            table.add_column(heading, justify="right" if i else "left", no_wrap=True)
        for cells in found.table[1:]:
            table.add_row(*cells)
        console.print(table)


def _print_routing(console: Console, receipt: dict[str, Any], again: list[dict[str, Any]]) -> None:
    from rich.table import Table

    where = f" on {receipt['replica']}" if receipt.get("replica") else ""
    head = f"[bold]{receipt['id']}[/bold]  {receipt['action']}{where}  by {receipt['policy']}"
    console.print(f"{head}  {moment(receipt['decided_s'])}", highlight=False)
    console.print(f"  {receipt['reason']}", highlight=False)
    if again:
        spent = again[-1]["decided_s"] - receipt["decided_s"]
        console.print(f"  decided {len(again) + 1} times alike within {spent:.1f} s", highlight=False)
    version = f" {receipt['model_version']}" if receipt.get("model_version") else ""
    console.print(f"  prediction: {receipt['tier']}{version}{_spread(receipt)}", highlight=False)
    if receipt["candidates"]:
        table = Table("replica", "own finish s", "harm s", "cost s", "calls to wait for")
        for c in receipt["candidates"]:
            numbers = (f"{c[k]:.3f}" for k in ("own_s", "harm_s", "cost_s"))
            table.add_row(c["replica"], *numbers, f"{c['releases']:.1f}")
        console.print(table)


def _spread(receipt: dict[str, Any]) -> str:
    from swarmx.quantiles import LEVELS

    grid = receipt.get("predicted_tokens")
    if not grid or len(grid) != LEVELS.size:
        return ""
    at = {float(level): value for level, value in zip(LEVELS, grid, strict=True)}
    return f", output tokens p50 {at[0.5]:.0f}, p95 {at[0.95]:.0f}, p99 {at[0.99]:.0f}"
