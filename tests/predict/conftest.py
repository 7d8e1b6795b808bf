"""A small log whose answer lengths follow from the wording, and a model trained on it once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from swarmx.types import CallRecord

SUBJECTS = ("rivers", "bread", "bees", "tax law", "glaciers", "chess", "sailing", "volcanoes", "tea", "opera")
FORMS = {
    "story": ("Write a long story about {}.", "Tell me a tale in which {} matter.", "Compose a saga on {}."),
    "word": ("In one word, what do you think of {}?", "Name a colour for {}.", "Is the topic of {} hard? Yes or no."),
    "list": ("List the main facts about {}.", "Give bullet points on {}.", "Enumerate the kinds of {}."),
}
MEDIANS = {"story": 200.0, "word": 3.0, "list": 60.0}


def draw_log(rows: int, seed: int = 0, typed: bool = True, prompts: bool = True) -> list[CallRecord]:
    """Workflows of a list call that causes three word calls, and lone stories; log-normal lengths."""
    rng = np.random.default_rng(seed)
    records: list[CallRecord] = []
    while len(records) < rows:
        flow = f"w{len(records)}"
        kinds = ["story"] if rng.random() < 0.4 else ["list", "word", "word", "word"]
        for step, kind in enumerate(kinds):
            form = int(rng.integers(3))
            subject = SUBJECTS[rng.integers(10)] + " " + SUBJECTS[rng.integers(10)]
            tokens = int(np.ceil(MEDIANS[kind] * rng.lognormal(0, 0.4)))
            records.append(
                CallRecord(
                    call_id=f"{flow}.{step}", model="m", arrival_s=float(step), status="ok", workflow_id=flow,
                    parent_id=f"{flow}.0" if step else None, type=kind if typed else None,
                    prompt=FORMS[kind][form].format(subject) if prompts else None,
                    prompt_group=f"{kind}{form}{subject}", output_tokens=tokens, device="cpu",
                    dispatched_s=float(step), first_token_s=step + 0.1, finished_s=step + 0.1 + tokens / 50,
                )
            )  # fmt: skip
    return records[:rows]


@pytest.fixture(scope="session")
def make_log() -> Callable[..., list[CallRecord]]:
    """`draw_log` for the tests."""
    return draw_log


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model directory trained on 400 rows."""
    from swarmx.predict.fit import FitConfig
    from swarmx.predict.train import TrainConfig, train

    out = tmp_path_factory.mktemp("model") / "m"
    train(draw_log(400), out, TrainConfig(fit=FitConfig(epochs=6, landmarks=64), plots=False))
    return out
