"""What an importer is told beside the file: its columns, and what to assume without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from swarmx.errors import BadInput
from swarmx.logs.fields import field_names
from swarmx.logs.values import TIME_UNITS

OUTPUT_TEXT = "output_text"  # no field of a record: where only the answer's text is known, tokens are estimated


@dataclass(frozen=True, slots=True)
class Column:
    """Where a field's value stands in a source.

    path : a column name, or keys and list places joined by dots (`usage.completion_tokens`, `choices.0.text`)
    unit : of a time: s, ms, us, ns or iso; None takes numbers as seconds and other text as ISO-8601
    optional : the source may lack it in every row
    relative : "+" for a duration since arrival_s, "-" (arrival_s only) for a duration before finished_s
    """

    path: str
    unit: str | None = None
    relative: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What an importer is told beside the file.

    columns : field of `CallRecord` (or `output_text`) -> where it stands; for the importers that have columns
    constants : field -> value of every call in which the source says nothing of it
    estimate_tokens : count one token per four characters of text where the source counts none
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    estimate_tokens: bool = False

    def over(self, columns: Mapping[str, Column], constants: Mapping[str, str] | None = None) -> ImportOptions:
        """These options on top of a format's own columns and constants."""
        return replace(self, columns={**columns, **self.columns}, constants={**(constants or {}), **self.constants})


def parse_map(items: Sequence[str]) -> dict[str, Column]:
    """`FIELD=PATH[:UNIT]` arguments as columns; a PATH led by + or - is a duration (see `Column`).

    Raises BadInput for an unknown field, or one without a path.
    """
    columns: dict[str, Column] = {}
    for item in items:
        name, _, path = item.partition("=")
        if name not in (*field_names(), OUTPUT_TEXT):
            known = ", ".join((*field_names(), OUTPUT_TEXT))
            raise BadInput(f"--map {item}: unknown field {name!r}; choose one of {known}")
        relative = path[:1] if path[:1] in ("+", "-") else ""
        path = path.removeprefix(relative)
        head, _, unit = path.rpartition(":")
        path, known_unit = (head, unit) if head and unit in TIME_UNITS else (path, None)
        if not path:
            raise BadInput(f"--map {item}: no column given; write {name}=COLUMN")
        if (relative and not name.endswith("_s")) or (relative == "-" and name != "arrival_s"):
            raise BadInput(
                f"--map {item}: +COLUMN is a duration since arrival_s, -COLUMN (for arrival_s) one before finished_s"
            )
        columns[name] = Column(path, known_unit, relative)
    return columns


def parse_constants(items: Sequence[str]) -> dict[str, str]:
    """`FIELD=VALUE` arguments. Raises BadInput for an unknown field."""
    constants: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if name not in field_names() or not equals:
            raise BadInput(f"--set {item}: write FIELD=VALUE with one of {', '.join(field_names())}")
        constants[name] = value
    return constants
