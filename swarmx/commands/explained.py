"""Receipts for people to read."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from swarmx.errors import BadInput

TIMEOUT_S = 10.0


def ask_gateway(url: str, wanted: str, token_env: str) -> list[dict[str, Any]]:
    """Receipts from a running gateway's administration API. Raises BadInput."""
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
    return []


def print_receipts(receipts: list[dict[str, Any]], as_json: bool) -> None:
    """One block per decision."""
    if as_json:
        print(json.dumps(receipts, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for receipt in receipts:
        where = f" on {receipt['replica']}" if receipt.get("replica") else ""
        console.print(
            f"[bold]{receipt['id']}[/bold]  {receipt['action']}{where}  by {receipt['policy']}", highlight=False
        )
        console.print(f"  {receipt['reason']}", highlight=False)
        console.print(f"  prediction: {receipt['tier']} {receipt.get('model_version') or ''}{_spread(receipt)}")
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
