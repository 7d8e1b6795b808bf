"""A log of many Parquet files, read and checked by Ray Data, a task per file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swarmx.adapters.ray_training.connecting import plain_errors
from swarmx.logs.table import read_table, records_of
from swarmx.types import CallRecord


def read_logs_on_ray(files: Sequence[Path]) -> list[CallRecord]:
    """Every record, file by file, as `logs.many.read_logs` gives them. The files must lie there for every node.

    Needs a connected Ray. Raises BadInput, naming file and row, as `read_table` does.
    """
    import ray

    with plain_errors(), quiet_data():
        names = ray.data.from_items([{"path": str(file)} for file in files], override_num_blocks=len(files))
        tables = names.map_batches(_read, batch_size=1, batch_format="pyarrow")
        found = ray.get(tables.to_arrow_refs())
    return [record for table in found if table.num_rows for record in records_of(table)]


@contextmanager
def quiet_data() -> Iterator[Any]:
    """Ray Data without progress bars and plans on the terminal, blocks in order."""
    import ray

    log = logging.getLogger("ray.data")
    level = log.level
    log.setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.execution_options.preserve_order
    context.enable_progress_bars, context.execution_options.preserve_order = False, True
    try:
        yield context
    finally:
        log.setLevel(level)
        context.enable_progress_bars, context.execution_options.preserve_order = before


def _read(batch: Any) -> Any:
    return read_table(batch["path"][0].as_py())
