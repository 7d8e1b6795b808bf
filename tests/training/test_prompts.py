"""The project's own prompts: varied, held together by templates, and silent about the length of their answers."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))

from prompts import LONG, PRIORITIES, SHAPES, SHORT, TENANTS, draw_single, draw_tasks
from prompts.chains import CHAINS
from prompts.people import EXTRACT, REPORT, ROLE, VERIFY
from prompts.shots import MAX_TOKENS, correction, fill
from prompts.steps import FAN_OUTS
from prompts.workflows import MOST_ITEMS, TRIES, items

from swarmx.logs.record import Answer, Ask, Task, transcript

NUMBER = re.compile(r"\d|\b(one|two|three|four|five|six|seven|eight|nine|ten|twelve|dozen|hundred|single)\b", re.I)
LENGTH = re.compile(  # "the longest word in a sentence" is about a program, not about the answer
    r"(?<!word )\b(in|within|under|at most|at least|exactly|about|only|no more than)\s+"
    r"(a|a few|few|some|several|many)\s+(short |long )?(words?|sentences?|lines?|paragraphs?|pages?|tokens?)\b",
    re.I,
)
STEPS = [step for shape in FAN_OUTS.values() for step in (shape.plan, shape.item, shape.merge)]
PEOPLE = [EXTRACT, VERIFY, ROLE, REPORT]
KINDS = [*SHORT, *LONG, *STEPS, *PEOPLE, *{step.name: step for chain in CHAINS for step in chain}.values()]


def play(task: Task, replies: Sequence[str] | None = None, default: str = "- alpha\n- beta\n- gamma") -> list[Ask]:
    """Run a workflow against scripted answers, in order of the calls; return what it asked."""
    asked: list[Ask] = []

    async def call(ask: Ask, after: Sequence[Answer] = ()) -> Answer:
        text = replies[len(asked)] if replies and len(asked) < len(replies) else default
        asked.append(ask)
        await asyncio.sleep(0)
        return Answer(str(len(asked)), text, float(len(asked)), len(text.split()))

    asyncio.run(task.run(call))
    return asked


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools take no time, so that a workflow ends at once."""
    monkeypatch.setattr("prompts.workflows.tool_s", lambda rng: 0.0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_prompt_says_how_long_its_answer_should_be(kind) -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        text = transcript(kind.ask(rng).prompt)
        assert not NUMBER.search(text), text
        assert not LENGTH.search(text), text


@pytest.mark.parametrize("kind", [*SHORT, *LONG], ids=lambda kind: kind.name)
def test_a_kind_has_several_templates_that_all_come_up(kind) -> None:
    rng = np.random.default_rng(2)
    drawn = Counter(kind.ask(rng).group for _ in range(40 * len(kind.templates)))
    assert len(kind.templates) >= 3
    assert set(drawn) == set(kind.groups())
    assert min(drawn.values()) >= 15  # 40 expected each; below 15 is four standard errors away


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_templates_of_a_kind_read_differently(kind) -> None:
    assert len(set(map(str, kind.templates))) == len(kind.templates)


def test_single_prompts_hardly_repeat() -> None:
    rng = np.random.default_rng(3)
    texts = [transcript(draw_single(rng).prompt) for _ in range(1000)]
    assert len(set(texts)) > 950


def test_every_tenant_priority_and_shape_comes_up_in_its_share() -> None:
    tasks = draw_tasks("x", 1500, [4])
    shapes = Counter(task.id.split("/")[1] for task in tasks)
    assert set(shapes) == {"single", *SHAPES}
    assert abs(shapes["single"] / 1500 - 0.3) < 4 * (0.3 * 0.7 / 1500) ** 0.5
    rng = np.random.default_rng(5)
    asks = [draw_single(rng) for _ in range(1500)]
    for drawn, shares in (([a.tenant for a in asks], TENANTS), ([a.priority for a in asks], PRIORITIES)):
        counts = Counter(drawn)
        for name, share in shares.items():
            assert abs(counts[name] / 1500 - share) < 4 * (share * (1 - share) / 1500) ** 0.5


def test_tasks_have_distinct_names_and_come_back_the_same(no_tools: None) -> None:
    first, again, other = (draw_tasks("x", 60, seed) for seed in ([6, 0], [6, 0], [6, 1]))
    assert len({task.id for task in first}) == 60
    assert [task.id for task in first] == [task.id for task in again]
    asked = [[play(task) for task in tasks] for tasks in (first, again, other)]
    assert asked[0] == asked[1] != asked[2]


def shaped(shape: str, count: int = 12) -> list[Task]:
    tasks = [task for task in draw_tasks("x", 400, [7]) if task.id.split("/")[1] == shape]
    return tasks[:count]


@pytest.mark.parametrize("shape", sorted(FAN_OUTS))
def test_a_fan_out_makes_a_call_per_item_and_merges(shape: str, no_tools: None) -> None:
    parts = FAN_OUTS[shape]
    for task in shaped(shape):
        asked = play(task)
        kinds = Counter(ask.type for ask in asked)
        assert kinds[parts.plan.name] == kinds[parts.merge.name] == 1
        assert kinds[parts.item.name] == 3
        assert asked[-1].type == parts.merge.name
        assert all("alpha" in transcript(ask.prompt) for ask in asked[-1:])
        assert len({(ask.tenant, ask.priority) for ask in asked}) == 1


def test_the_items_of_one_plan_share_template_and_examples(no_tools: None) -> None:
    for task in shaped("tasks"):
        prompts = [ask.prompt for ask in play(task) if ask.type == "task_tip"]
        assert len({str(prompt[:-1]) for prompt in prompts}) == 1
        assert len({str(prompt[-1]) for prompt in prompts}) == 3


@pytest.mark.parametrize("shape", [*sorted(FAN_OUTS), "extract"])
def test_a_list_that_cannot_be_read_is_asked_for_again_but_not_for_ever(shape: str, no_tools: None) -> None:
    for task in shaped(shape, 4):
        asked = play(task, ["no list", "- lonely"])
        assert [str(ask.type).endswith("_again") for ask in asked[:4]] == [False, True, True, False]
        assert asked[0].group == asked[1].group == asked[2].group  # or a held-out template would leak
        assert len(play(task, default="no list")) == TRIES


def test_extracted_names_are_verified_and_the_confirmed_looked_into(no_tools: None) -> None:
    for task in shaped("extract", 4):
        asked = play(task, ["- Ann\n- Bob\n- Cid", "yes", "no", "Yes."])
        assert [ask.type for ask in asked] == ["extract", *["verify"] * 3, *["role"] * 2, "people_report"]
        assert [ask.type for ask in play(task, ["- Ann\n- Bob", "no", "no"])][-1] == "people_report"


def test_a_chain_ends_when_an_answer_is_empty(no_tools: None) -> None:
    lengths = {len(play(task)) for task in shaped("chain", 30)}
    assert lengths == {len(chain) for chain in CHAINS}
    assert all(len(play(task, default=" ")) == 1 for task in shaped("chain", 3))


def test_lists_are_read_in_the_forms_that_models_use() -> None:
    assert items("- a\n* b\n1. c\n2) d\n• e\ntext") == ["a", "b", "c", "d", "e"]
    assert len(items("- a\n- A\n-  a ")) == 1
    assert items("\n".join(f"- item {i}" for i in range(9))) == [f"item {i}" for i in range(MOST_ITEMS)]
    assert items("- " + "x" * 121 + "\n- y") == ["y"]
    assert items("nothing\n-\n") == []


def test_a_correction_shows_the_answer_and_the_complaint() -> None:
    again = correction(Ask("List it.", "plan", "plan/0", "lab", "low", MAX_TOKENS), "no", "A list, please.")
    assert [m["role"] for m in again.prompt] == ["user", "assistant", "user"]  # type: ignore[union-attr]
    assert (again.type, again.group, again.tenant, again.priority) == ("plan_again", "plan/0", "lab", "low")


def test_a_slot_is_filled_with_what_is_given_else_with_a_word() -> None:
    assert fill(np.random.default_rng(0), "{name} and {name}", {"name": "Eve"}) == "Eve and Eve"
    assert "{" not in fill(np.random.default_rng(0), "{animal} {mood} {place}")


def test_templates_can_be_held_out_without_losing_a_kind() -> None:
    groups = defaultdict(set)
    for kind in KINDS:
        groups[kind.name] |= set(f"{kind.name}/{i}" for i in range(len(kind.templates)))
    assert all(len(names) >= 3 for names in groups.values())
