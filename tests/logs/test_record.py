"""The recorder against a small real server that streams."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from echo_server import Server

from swarmx.errors import BadInput
from swarmx.logs.record import Ask, Caller, Recorder, Task
from swarmx.logs.record_journal import Journal, complete, from_row, read_journal, to_row
from swarmx.logs.record_run import closed_loop, open_loop, single
from swarmx.logs.record_stream import Endpoint
from swarmx.logs.workflows import workflows_of
from swarmx.types import CallRecord


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def run(
    path: Path, endpoints: Sequence[Endpoint], tasks: Sequence[Task], concurrency: int = 1, **options: Any
) -> list[CallRecord]:
    """Record the tasks in a closed loop and read the journal."""

    async def main() -> None:
        with Journal(path) as journal:
            async with Recorder(endpoints, journal, "echo", **options) as recorder:
                await closed_loop(recorder, tasks, concurrency)

    asyncio.run(main())
    return complete(*read_journal(path))


def echoes(*prompts: str) -> list[Task]:
    return [Task(f"t{i}", single(Ask(prompt))) for i, prompt in enumerate(prompts)]


def test_a_row_holds_the_times_and_the_servers_counts(tmp_path: Path, server: Server) -> None:
    ask = Ask("a b c d", "echo", "echo/0", "lab", "high", 7)
    [row] = run(tmp_path / "j", [Endpoint(server.url, "cpu")], [Task("w", single(ask))])
    assert row.first_token_s is not None and row.finished_s is not None
    assert row.workflow_arrival_s == pytest.approx(row.arrival_s, abs=0.1)
    assert 0 <= row.arrival_s == row.dispatched_s
    assert row.first_token_s - row.arrival_s >= server.token_s  # the role event before it is no token
    assert row.finished_s - row.first_token_s >= 3 * server.token_s
    assert (row.prompt_tokens, row.output_tokens, row.cached_tokens) == (14, 4, 3)
    assert (row.status, row.device, row.replica) == ("ok", "cpu", server.url.removeprefix("http://"))
    assert (row.type, row.prompt_group, row.tenant, row.priority, row.max_tokens) == (
        "echo",
        "echo/0",
        "lab",
        "high",
        7,
    )
    assert (row.prompt, row.model, row.policy, row.workflow_id) == ("a b c d", "echo", "random", "w")
    [body] = server.bodies
    assert body["max_tokens"] == 7 and body["stream_options"] == {"include_usage": True}


def test_tokens_are_counted_by_chunks_where_the_server_reports_no_usage(tmp_path: Path) -> None:
    with Server(usage=False) as server:
        [row] = run(tmp_path / "j", [Endpoint(server.url)], echoes("a b c"))
    assert (row.output_tokens, row.prompt_tokens, row.cached_tokens) == (3, 0, 0)


def test_several_messages_are_kept_as_one_transcript(tmp_path: Path, server: Server) -> None:
    messages = ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi you"})
    [row] = run(tmp_path / "j", [Endpoint(server.url)], [Task("w", single(Ask(messages)))])
    assert row.prompt == "system: Be kind.\nuser: hi you"
    assert server.bodies[0]["messages"] == list(messages)


async def plan_items_merge(call: Caller) -> None:
    plan = await call(Ask("x y z", "plan"))
    items = await asyncio.gather(*(call(Ask(f"{w} " * (9 - 3 * i)), [plan]) for i, w in enumerate(plan.text.split())))
    await asyncio.sleep(0.02)
    await call(Ask("merge", "merge"), items)


def test_a_merge_waits_for_all_and_its_parent_is_the_last_to_end(tmp_path: Path, server: Server) -> None:
    rows = run(tmp_path / "j", [Endpoint(server.url)], [Task("w", plan_items_merge)])
    plan, *items, merge = rows
    assert [row.parent_id for row in items] == [plan.call_id] * 3
    assert set(merge.waits_for) == {row.call_id for row in items}
    assert merge.parent_id == merge.waits_for[-1] == max(items, key=lambda row: row.finished_s or 0.0).call_id
    [workflow] = workflows_of(rows)
    assert [len(call.parents) for call in workflow.calls] == [0, 1, 1, 1, 3]
    assert workflow.calls[-1].delay_s >= 0.02


def test_the_book_says_how_many_run_and_wait_at_dispatch(tmp_path: Path, server: Server) -> None:
    rows = run(tmp_path / "j", [Endpoint(server.url)], echoes(*["a b c d e f"] * 4), concurrency=4)
    assert [(row.running_at_dispatch, row.waiting_at_dispatch) for row in rows] == [(0, 0), (1, 0), (2, 0), (2, 1)]
    held = [row.kv_tokens_at_dispatch for row in rows]
    assert held[0] == 0 < held[1] < held[2] == held[3]  # type: ignore[operator]


def test_without_known_slots_all_calls_count_as_running(tmp_path: Path) -> None:
    with Server(slots=None) as server:
        rows = run(tmp_path / "j", [Endpoint(server.url)], echoes(*["a b c d e f"] * 3), concurrency=3)
    assert [(row.running_at_dispatch, row.waiting_at_dispatch) for row in rows] == [(0, 0), (1, 0), (2, 0)]


def test_a_closed_loop_keeps_to_its_number(tmp_path: Path, server: Server) -> None:
    rows = run(tmp_path / "j", [Endpoint(server.url)], echoes(*["a b c"] * 20), concurrency=3)
    assert len(rows) == 20
    assert server.most == 3


def test_an_open_loop_does_not_wait_for_a_slow_server(tmp_path: Path) -> None:
    rate, count = 400.0, 100

    async def main(url: str) -> None:
        with Journal(tmp_path / "j") as journal:
            async with Recorder([Endpoint(url)], journal, "echo") as recorder:
                await open_loop(recorder, echoes(*["slow"] * count), rate, seed=3)

    with Server(token_s=0.5) as server:
        asyncio.run(main(server.url))
        assert server.most > count / 2
    born = np.array([row.workflow_arrival_s for row in complete(*read_journal(tmp_path / "j"))])
    due = np.cumsum(np.random.default_rng(3).exponential(1 / rate, count))
    late = (born - born[0]) - (due - due[0])
    assert np.median(np.abs(late)) < 0.1  # the machine may be busy; the server's half second must not show


def test_round_robin_takes_turns_and_random_keeps_its_weights(tmp_path: Path, server: Server) -> None:
    with Server() as other:
        ends = [Endpoint(server.url, "a", 3.0), Endpoint(other.url, "b", 1.0)]
        turns = run(tmp_path / "j1", ends, echoes(*["x"] * 6), dispatch="round_robin")
        drawn = run(tmp_path / "j2", ends, echoes(*["x"] * 200), concurrency=20)
    assert [row.device for row in turns] == list("ababab")
    share = Counter(row.device for row in drawn)["a"] / 200
    assert abs(share - 0.75) < 4 * (0.75 * 0.25 / 200) ** 0.5  # four standard errors


def test_same_seed_same_endpoints_and_sampling_seeds(tmp_path: Path, server: Server) -> None:
    ends = [Endpoint(server.url, "a"), Endpoint(server.url, "b")]
    first, again, other = (
        run(tmp_path / f"j{i}", ends, echoes(*["x"] * 8), seed=seed) for i, seed in enumerate((5, 5, 6))
    )
    seeds = [[body["seed"] for body in server.bodies[k : k + 8]] for k in (0, 8, 16)]
    assert [r.device for r in first] == [r.device for r in again]
    assert seeds[0] == seeds[1] != seeds[2]
    assert len(other) == 8 == len(set(seeds[0]))


@pytest.mark.parametrize(("prompt", "status"), [("fail", "error"), ("cut off here", "error"), ("error now", "error")])
def test_a_failed_call_ends_its_workflow_and_no_other(tmp_path: Path, server: Server, prompt: str, status: str) -> None:
    async def two(call: Caller) -> None:
        first = await call(Ask(prompt))
        await call(Ask("never"), [first])

    rows = run(tmp_path / "j", [Endpoint(server.url)], [Task("bad", two), *echoes("fine")])
    assert [(row.prompt, row.status) for row in rows] == [(prompt, status), ("fine", "ok")]
    ends = read_journal(tmp_path / "j")[1]
    assert ends["t0"] is None and ends["bad"]


def test_a_call_that_takes_too_long_is_a_timeout(tmp_path: Path) -> None:
    with Server(token_s=2.0) as server:
        [row] = run(tmp_path / "j", [Endpoint(server.url)], echoes("slow"), timeout_s=0.2)
    assert row.status == "timeout" and row.finished_s - row.arrival_s < 1.5  # type: ignore[operator]


def test_an_endpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"http://127\.0\.0\.1:9 does not answer.*correct --endpoint"):
        run(tmp_path / "j", [Endpoint("http://127.0.0.1:9")], echoes("x"))


def test_an_endpoint_that_keeps_failing_stops_the_recording(tmp_path: Path, server: Server) -> None:
    with pytest.raises(BadInput, match=r"failed 20 calls in a row.*out of memory"):
        run(tmp_path / "j", [Endpoint(server.url)], echoes(*["fail"] * 50))
    assert len(read_journal(tmp_path / "j")[0]) == 20


def test_a_defect_in_a_workflow_is_raised_as_itself(tmp_path: Path, server: Server) -> None:
    async def broken(call: Caller) -> None:
        raise KeyError("name")

    with pytest.raises(KeyError, match="name"):
        run(tmp_path / "j", [Endpoint(server.url)], [Task("w", broken)])


def test_a_torn_journal_loses_only_what_had_not_ended(tmp_path: Path, server: Server) -> None:
    path, tasks = tmp_path / "j", echoes("a", "b", "c")
    before = run(path, [Endpoint(server.url)], tasks[:1])
    open_call = to_row(replace(before[0], call_id="t1.1", workflow_id="t1"))
    with path.open("a") as file:
        file.write(json.dumps(open_call) + "\n" + '{"call_id": "t1.2", "mod')
    rows = run(path, [Endpoint(server.url)], tasks)
    assert [row.call_id for row in rows] == ["t0.1", "t1.1", "t2.1"]
    assert rows[0] == before[0]
    assert len(server.bodies) == 3
    assert rows[1].arrival_s > before[0].finished_s  # type: ignore[operator]


def test_a_row_survives_the_journal(tmp_path: Path) -> None:
    row = CallRecord("c", "m", 1.5, "ok", waits_for=("a", "b"), priority="low", predicted_tokens=(1.0, 2.0))
    assert from_row(json.loads(json.dumps(to_row(row)))) == row


def test_a_line_that_is_no_journal_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('{"workflow_end": "a", "failed": null}\n{"call_id": "c", "colour": 1}\n')
    with pytest.raises(BadInput, match="j, line 2: not a line of a recording's journal"):
        read_journal(tmp_path / "j")
