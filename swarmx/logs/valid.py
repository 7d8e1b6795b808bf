"""What every log must satisfy, whoever wrote it; checked on whole columns when one is written or read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.logs.fields import Field, log_fields
from swarmx.quantiles import LEVELS

if TYPE_CHECKING:
    import pyarrow as pa

Mask = NDArray[np.bool_]

# A time may lie this far before the one it follows: start + duration, each rounded, misses the end by that.
CLOCK_TOLERANCE_S = 1e-6
# Each must not be earlier than those before it, where the log has them.
_STAGES = ("arrival_s", "dispatched_s", "first_token_s", "finished_s")


def check_table(table: pa.Table, source: str) -> None:
    """Refuse a log that breaks a promise of data/SCHEMA.md.

    Raises BadInput naming `source`, the row (counted from 1), the field and the value, for an empty log, a
    missing required value, a repeated call id, an unknown status, priority or prediction source, a time that
    is negative, not finite or before the one it follows, a negative count, or a prediction that is no
    quantile grid.
    """
    if table.num_rows == 0:
        raise BadInput(f"{source}: the log holds no calls; record or import at least one")
    for field in log_fields():
        _check_field(table, field, source)
    _check_unique(table, source)
    _check_order(table, source)
    _check_predictions(table, source)


def _check_field(table: pa.Table, field: Field, source: str) -> None:
    import pyarrow.compute as pc

    column = table[field.name]
    empty = column.is_null().to_numpy()
    if field.required:
        _refuse(empty, table, field.name, source, "is missing; every call needs it")
    if field.choices:
        strange = ~pc.is_in(column, value_set=_texts(field.choices)).to_numpy() & ~empty
        _refuse(strange, table, field.name, source, f"is unknown; choose one of {', '.join(field.choices)}")
    elif field.required and field.kind == "text":
        _refuse(
            pc.equal(column, "").to_numpy() & ~empty,
            table,
            field.name,
            source,
            "is empty; every call needs it",
        )
    if field.kind == "number":
        values = column.to_numpy()
        _refuse(~np.isfinite(values) & ~empty, table, field.name, source, "is not finite; seconds are")
        _refuse(values < 0, table, field.name, source, "is negative; let the log's clock start at 0")
    if field.kind == "count":
        least = 1 if field.name == "max_tokens" else 0
        _refuse(column.to_numpy() < least, table, field.name, source, f"is below {least}")


def _check_unique(table: pa.Table, source: str) -> None:
    codes = table["call_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    again = np.ones(codes.size, dtype=np.bool_)
    again[np.unique(codes, return_index=True)[1]] = False
    _refuse(again, table, "call_id", source, "occurs a second time; ids must be unique")


def _check_order(table: pa.Table, source: str) -> None:
    start = table["workflow_arrival_s"].to_numpy()
    late = start > table["arrival_s"].to_numpy() + CLOCK_TOLERANCE_S
    _refuse(late, table, "workflow_arrival_s", source, "is after the call's arrival_s")
    for place, name in enumerate(_STAGES):
        values = table[name].to_numpy()
        for earlier in _STAGES[:place]:
            late = values < table[earlier].to_numpy() - CLOCK_TOLERANCE_S
            _refuse(late, table, name, source, f"is before {earlier}")


def _check_predictions(table: pa.Table, source: str) -> None:
    import pyarrow.compute as pc

    column = table["predicted_tokens"].combine_chunks()
    given = column.is_valid().to_numpy(zero_copy_only=False)
    if not given.any():
        return
    lengths = np.nan_to_num(pc.list_value_length(column).to_numpy(zero_copy_only=False), nan=LEVELS.size)
    wrong = lengths != LEVELS.size
    _refuse(wrong, table, "predicted_tokens", source, f"needs {LEVELS.size} values, one for each quantile level")
    grids = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, LEVELS.size)  # (calls with one, K)
    broken = np.zeros(table.num_rows, dtype=np.bool_)
    broken[given] = ~np.all(np.isfinite(grids) & (grids >= 0), axis=1) | np.any(np.diff(grids, axis=1) < 0, axis=1)
    _refuse(broken, table, "predicted_tokens", source, "must be finite, >= 0 and not decrease with the level")


def _refuse(bad: Mask, table: pa.Table, name: str, source: str, why: str) -> None:
    """Raise BadInput for the first row where `bad`, (rows,), is true."""
    if not bad.any():
        return
    row = int(np.argmax(bad))
    value = str(table[name][row].as_py())[:80]
    call = table["call_id"][row].as_py()
    raise BadInput(f"{source}: row {row + 1} (call {call!r}), field {name}: {value!r} {why}")


def _texts(values: Iterable[str]) -> Any:
    import pyarrow as pa

    return pa.array(list(values), pa.string())
