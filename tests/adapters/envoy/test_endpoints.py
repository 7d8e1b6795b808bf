"""Where endpoints come from."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from patience import until

from swarmx.adapters.envoy.endpoints import Endpoint, read_endpoints, watch_dns, watch_file
from swarmx.errors import BadInput


def test_a_file_is_followed_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "replicas.yaml"
    path.write_text("[{url: 'http://10.0.0.1:8000', slots: 4, device: l4}]")
    assert read_endpoints(path) == (Endpoint("10.0.0.1:8000", "l4", 4),)

    async def run() -> None:
        told: list[tuple[Endpoint, ...]] = []
        task = asyncio.create_task(watch_file(path, 0.02, told.append))
        await until(lambda: len(told) == 1)
        path.write_text("[{url: ")
        await asyncio.sleep(0.1)
        assert len(told) == 1
        path.write_text("[{url: 'http://10.0.0.2:8000'}]")
        await until(lambda: len(told) == 2)
        assert told[1][0].address == "10.0.0.2:8000"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{url: 'http://a:1'}, {url: 'http://a:1/'}]", "same address"),
        ("[{url: 'http://a:1/path'}]", "remove the path"),
        ("[{url: 'http://a:1', slotz: 3}]", "slotz"),
        ("{", "cannot be read"),
        ("- url: 2026-13-01", "cannot be read"),
        ("[" * 5000, "cannot be read"),
    ],
)
def test_a_bad_list_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "replicas.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=said):
        read_endpoints(path)


def test_every_address_of_a_name_is_an_endpoint_and_a_failed_look_up_keeps_them() -> None:
    answers: list[list[str] | OSError] = [["10.0.0.2:80", "10.0.0.1:80"], OSError("no such name"), ["[fd00::1]:80"]]

    async def resolve(host: str, port: int) -> list[str]:
        said = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(said, OSError):
            raise said
        return said

    async def run() -> None:
        told: list[tuple[str, ...]] = []
        work = watch_dns("llm", 80, {"device": "l4"}, 0.01, lambda e: told.append(tuple(x.address for x in e)), resolve)
        task = asyncio.create_task(work)
        await until(lambda: len(told) == 2)
        assert told == [("10.0.0.1:80", "10.0.0.2:80"), ("[fd00::1]:80",)]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
