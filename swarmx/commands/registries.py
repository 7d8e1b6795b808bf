"""Every registry in one list: what can be named in a configuration or on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping


def registries() -> dict[str, dict[str, str]]:
    """Registry -> name -> one line, in the order of the registries."""
    from swarmx.logs import IMPORTERS
    from swarmx.ordering import ORDERS
    from swarmx.presets import PRESETS
    from swarmx.routing import PLACEMENTS
    from swarmx.scaling import SCALERS
    from swarmx.sim.suites import SUITES

    needs = {"prediction": " [uses predictions]", "oracle": " [needs true lengths: simulation alone]"}
    return {
        "policies (--policy, scheduler.preset)": {
            name: preset.about + needs.get(preset.needs, "") for name, preset in PRESETS.items()
        },
        "orders (scheduler.order)": _documented(ORDERS),
        "placements (scheduler.cost)": _documented(PLACEMENTS),
        "scaling policies (scaling.policy)": {name: scaler.about for name, scaler in SCALERS.items()},
        "suites (--suite)": {name: suite.about for name, suite in SUITES.items()},
        "log formats (swarmx log import --format)": {name: source.description for name, source in IMPORTERS.items()},
    }


def _documented(registry: Mapping[str, object]) -> dict[str, str]:
    """The first line of each entry's docstring, without the full stop."""
    return {name: (entry.__doc__ or "").strip().split("\n")[0].rstrip(".") for name, entry in registry.items()}


def print_registries(as_json: bool) -> None:
    """To standard output, as a table or as JSON."""
    found = registries()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for registry, entries in found.items():
        table.add_row(f"[bold]{registry}[/bold]", "")
        for name, line in entries.items():
            table.add_row(f"  {name}", line)
        table.add_row("", "")
    Console().print(table, highlight=False)
