"""`swarmx log record`: its files and options, a recording that is killed, and a real engine where one is given."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from echo_server import Server
from typer.testing import CliRunner

from swarmx.commands.record import record_
from swarmx.errors import BadInput
from swarmx.logs.record import Ask, Recorder, Task
from swarmx.logs.record_journal import Journal, complete, read_journal
from swarmx.logs.record_run import closed_loop, prompt_tasks, single, workflow_tasks
from swarmx.logs.record_stream import Endpoint, parse_endpoint
from swarmx.logs.table import read_log
from swarmx.logs.workflows import workflows_of
from swarmx.types import CallRecord


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("http://h:1", Endpoint("http://h:1")),
        ("http://h:1/v1/=a100", Endpoint("http://h:1", "a100")),
        ("https://h=l4*0.5", Endpoint("https://h", "l4", 0.5)),
    ],
)
def test_an_endpoint_is_read(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["h:1=a100", "http://h=a*x", "http://h=a*0", "http://h=a*nan", "http://h=a*-1"])
def test_a_wrong_endpoint_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--endpoint"):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: not an object"),
        ('{"prompt": "x", "colour": "red"}', "unknown field 'colour'"),
        ('{"prompt": ""}', "prompt is ''"),
        ('{"prompt": 3}', "prompt is 3"),
        ('{"type": "a"}', "give either prompt or messages"),
        ('{"prompt": "x", "messages": []}', "give either prompt or messages"),
        ('{"messages": []}', "messages must be a list"),
        ('{"messages": [{"role": "user"}]}', "messages must be a list"),
        ('{"prompt": "x", "priority": "urgent"}', "priority is 'urgent'; choose one of high, normal, low"),
        ('{"prompt": "x", "max_tokens": 0}', "max_tokens is 0"),
        ('{"prompt": "x", "max_tokens": true}', "max_tokens is True"),
        ('{"prompt": "x", "tenant": 4}', "tenant is 4"),
    ],
)
def test_a_wrong_prompt_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "fine"}\n' + line + "\n")
    with pytest.raises(BadInput, match=r"p\.jsonl") as problem:
        prompt_tasks(tmp_path / "p.jsonl")
    assert complaint in str(problem.value)


def test_a_missing_or_empty_prompt_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"absent\.jsonl: cannot be read"):
        prompt_tasks(tmp_path / "absent.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(BadInput, match="holds no prompt"):
        prompt_tasks(tmp_path / "empty.jsonl")


def test_a_workflow_file_without_the_function_is_named(tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text("x = 1\n")
    with pytest.raises(BadInput, match=r"w\.py: defines no function workflow"):
        workflow_tasks(tmp_path / "w.py", 1)
    with pytest.raises(BadInput, match=r"absent\.py: no such file"):
        workflow_tasks(tmp_path / "absent.py", 1)


def command(*arguments: str | Path) -> Any:
    app = typer.Typer()
    app.command()(record_)
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=True)


def test_the_command_writes_a_log_and_leaves_no_journal(tmp_path: Path, server: Server) -> None:
    (tmp_path / "p.jsonl").write_text(
        '{"prompt": "a b", "type": "t"}\n{"messages": [{"role": "user", "content": "c"}]}\n'
    )
    out = tmp_path / "log.parquet"
    arguments = ("--endpoint", f"{server.url}=cpu", "--model", "echo", "--prompts", tmp_path / "p.jsonl", "--out", out)
    result = command(*arguments, "--rate", "500", "--temperature", "0.3", "--api-key", "k")
    assert result.exit_code == 0, result.output
    assert "2 calls (2 ok) in 2 workflows" in result.output
    assert sorted((row.workflow_id, row.output_tokens) for row in read_log(out)) == [("prompt/1", 2), ("prompt/2", 1)]
    assert server.bodies[0]["temperature"] == 0.3
    assert server.keys == {"Bearer k"}
    assert [path.name for path in tmp_path.iterdir() if "journal" in path.name] == []
    assert isinstance(command(*arguments).exception, BadInput)  # the log exists
    assert command(*arguments, "--overwrite").exit_code == 0


def test_the_command_runs_a_workflow_file(tmp_path: Path, server: Server) -> None:
    (tmp_path / "agents.py").write_text(
        "from swarmx.logs.record import Ask\n"
        "def workflow(number):\n"
        "    async def run(call):\n"
        "        first = await call(Ask(f'hello {number}'))\n"
        "        await call(Ask(first.text), [first])\n"
        "    return run\n"
    )
    out = tmp_path / "log.parquet"
    result = command(
        "--endpoint", server.url, "--model", "echo", "--workflows", tmp_path / "agents.py", "--count", "5",
        "--concurrency", "2", "--out", out, "--policy", "round_robin",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert [len(workflow.calls) for workflow in workflows_of(read_log(out))] == [2] * 5


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        ([], "either --prompts FILE or --workflows FILE"),
        (["--prompts", "p", "--workflows", "w"], "either --prompts FILE or --workflows FILE"),
        (["--prompts", "p", "--rate", "0"], "--rate, a number above 0"),
        (["--prompts", "p", "--rate", "1", "--concurrency", "2"], "not both"),
        (["--prompts", "p", "--timeout", "0"], "--timeout is 0"),
    ],
)
def test_contradictory_options_are_refused(tmp_path: Path, extra: list[str], complaint: str) -> None:
    result = command("--endpoint", "http://127.0.0.1:9", "--model", "m", "--out", tmp_path / "o.parquet", *extra)
    assert isinstance(result.exception, BadInput) and complaint in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_killed_recording_goes_on_where_it_stopped(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": f"word {i}"}) for i in range(60)]
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    out, journal = tmp_path / "log.parquet", tmp_path / "log.parquet.journal.jsonl"
    with Server(token_s=0.02) as server:
        program = "import typer; from swarmx.commands.record import record_; typer.run(record_)"
        arguments = ["--endpoint", server.url, "--model", "echo", "--prompts", tmp_path / "p.jsonl", "--out", out]
        command_line = [sys.executable, "-c", program, *map(str, arguments)]
        with subprocess.Popen(command_line, stdout=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and not (journal.exists() and journal.read_bytes().count(b"\n") > 10):
                time.sleep(0.02)
            process.kill()
        kept = complete(*read_journal(journal))
        assert 5 <= len(kept) < 60 and not out.exists()
        subprocess.run(command_line, check=True, stdout=subprocess.DEVNULL)
    rows = read_log(out)
    assert rows[: len(kept)] == kept
    assert sorted(row.workflow_id for row in rows) == sorted(f"prompt/{i}" for i in range(1, 61))


@pytest.mark.engine
@pytest.mark.skipif(
    not {"SWARMX_LLAMA_SERVER", "SWARMX_GGUF"} <= set(os.environ),
    reason="set SWARMX_LLAMA_SERVER to a llama-server binary and SWARMX_GGUF to a model",
)
def test_a_real_engine_is_recorded(tmp_path: Path) -> None:
    server, port = Path(os.environ["SWARMX_LLAMA_SERVER"]), 8397
    options = f"-t 1 -tb 1 -np 2 -c 2048 --host 127.0.0.1 --port {port}".split()
    environment = os.environ | {"LD_LIBRARY_PATH": str(server.parent)}
    command_line = [str(server), "-m", os.environ["SWARMX_GGUF"], *options]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command_line, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            rows = run_when_ready(tmp_path / "j", Endpoint(f"http://127.0.0.1:{port}", "cpu"))
        finally:
            process.terminate()
    assert [row.status for row in rows] == ["ok"] * 4
    assert all(0 < row.output_tokens <= 12 and row.prompt_tokens > 0 for row in rows)
    assert all(row.arrival_s < row.first_token_s <= row.finished_s for row in rows)  # type: ignore[operator]
    assert [row.waiting_at_dispatch for row in rows] == [
        0,
        0,
        0,
        1,
    ]  # the fourth found two slots taken and one before it


def run_when_ready(path: Path, endpoint: Endpoint) -> list[CallRecord]:
    tasks = [Task(f"t{i}", single(Ask(f"Tell me about the number {i}.", max_tokens=12))) for i in range(4)]

    async def main() -> None:
        with Journal(path) as journal:
            async with Recorder([endpoint], journal, "any") as recorder:
                await closed_loop(recorder, tasks, concurrency=4)

    for _ in range(60):
        try:
            asyncio.run(main())
        except BadInput:
            time.sleep(0.5)
        else:
            return complete(*read_journal(path))
    raise AssertionError("llama-server was not ready in 30 s")
