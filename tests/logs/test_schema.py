from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from swarmx.logs.fields import SCHEMA_VERSION, log_fields
from swarmx.types import CallRecord

TEXT = (Path(__file__).parents[2] / "data" / "SCHEMA.md").read_text()
TYPES = {
    "text": "text",
    "number": "float",
    "count": "int",
    "bytes": "bytes",
    "numbers": "list of float32",
    "texts": "list of text",
}


def documented() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", TEXT, flags=re.M)
    return {name: [cell.strip() for cell in re.split(r"(?<!\\)\|", cells)] for name, cells in rows}


def test_every_field_is_documented_in_order() -> None:
    assert list(documented()) == [f.name for f in fields(CallRecord)]


def test_the_documented_types_choices_and_defaults_are_those_of_the_code() -> None:
    for field in log_fields():
        kind, _unit, meaning, missing = documented()[field.name]
        assert kind == TYPES[field.kind], field.name
        assert all(f"`{choice}`" in meaning for choice in field.choices), field.name
        assert (missing.startswith("never")) == (field.required or field.default in ("default", "normal")), field.name
        assert missing.startswith("null") == (field.default is None and not field.required), field.name
        assert missing.startswith("0") == (field.default == 0 and field.default is not None), field.name


def test_times_are_in_seconds_and_lengths_in_tokens() -> None:
    units = {name: cells[1] for name, cells in documented().items()}
    assert all(unit == "s" for name, unit in units.items() if name.endswith("_s"))
    assert all(unit == "tokens" for name, unit in units.items() if "tokens" in name)


def test_the_documented_version_is_the_code_s() -> None:
    assert f"the schema version, now {SCHEMA_VERSION})" in TEXT
