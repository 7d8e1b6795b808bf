"""Agents that plan, write code in parallel and summarise; every call says by its headers whose work it is.

python drive_agents.py --url http://127.0.0.1:8000/ --agents 20
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from swarmx import client

Send = Callable[[dict[str, Any], dict[str, str]], Awaitable[dict[str, Any]]]  # body, headers -> answer
WORDS = ["parse", "cache", "index", "stream", "graph", "lock", "queue", "batch", "shard", "token", "merge", "scan"]


async def call(send: Send, model: str, prompt: str) -> str:
    """One model call in the present workflow; returns its id."""
    name = f"{model}-{uuid.uuid4().hex[:8]}"
    await send({"model": model, "prompt": prompt}, client.headers(type=model, call_id=name))
    return name


async def agent(send: Send, task: str, parts: int) -> float:
    """Plan, then `parts` pieces of code at once, then a summary. Seconds from the first call to the last answer."""
    began = time.monotonic()
    with client.workflow() as work:
        plan = await call(send, "plan", f"Plan how to {task}.")
        with work.after(plan):
            codes = await asyncio.gather(
                *(call(send, "code", f"Write part {WORDS[i]} of: {task}.") for i in range(parts))
            )
        with work.after(codes[-1]):
            await call(send, "summarise", f"Sum up what was done to {task}.")
    return time.monotonic() - began


async def agents(send: Send, count: int, every_s: float, seed: int = 0) -> list[float]:
    """That many agents, one after `every_s` on average; seconds that each took."""
    draw = random.Random(seed)
    running = []
    for _ in range(count):
        task = " the ".join(draw.sample(WORDS, 4))
        running.append(asyncio.create_task(agent(send, task, draw.randint(1, 4))))
        await asyncio.sleep(draw.expovariate(1 / every_s))
    return list(await asyncio.gather(*running))


async def over_http(url: str, count: int, every_s: float) -> list[float]:
    """The agents against an ingress that takes HTTP."""
    import aiohttp

    async with aiohttp.ClientSession() as session:

        async def send(body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
            async with session.post(url, json=body, headers=headers) as answer:
                answer.raise_for_status()
                found: dict[str, Any] = await answer.json()
                return found

        return await agents(send, count, every_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000/")
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between agents, on average")
    asked = parser.parse_args()
    took = sorted(asyncio.run(over_http(asked.url, asked.agents, asked.every)))
    middle, late = took[len(took) // 2], took[min(int(len(took) * 0.95), len(took) - 1)]
    print(f"{len(took)} agents: P50 {middle:.2f} s, P95 {late:.2f} s")


if __name__ == "__main__":
    main()
