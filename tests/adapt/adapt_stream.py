"""A stream of calls whose answer lengths follow from the wording, for the tests of the adaptation loop."""

from __future__ import annotations

import numpy as np

from swarmx.types import CallRecord

SUBJECTS = ("rivers", "bread", "bees", "tax law", "glaciers", "chess", "sailing", "volcanoes", "tea", "opera")
FORMS = {
    "story": ("Write a long story about {}.", "Tell me a tale in which {} matter.", "Compose a saga on {}."),
    "word": ("In one word, what do you think of {}?", "Name a colour for {}.", "Is the topic of {} hard? Yes or no."),
    "list": ("List the main facts about {}.", "Give bullet points on {}.", "Enumerate the kinds of {}."),
}
MEDIANS = {"story": 200.0, "word": 8.0, "list": 60.0}


def stream(
    rows: int, seed: int = 0, factor: float = 1.0, first: int = 0, only: str | None = None, noise: float = 0.3
) -> list[CallRecord]:
    """Lone calls, one a second from second `first` on; lengths times `factor`, of type `only` where given."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(first, first + rows):
        kind = ("story", "word", "list")[int(rng.integers(3))]
        form = FORMS[kind][int(rng.integers(3))]
        subject = f"{SUBJECTS[int(rng.integers(10))]} and {SUBJECTS[int(rng.integers(10))]}"
        times = factor if only in (None, kind) else 1.0
        tokens = max(1, round(times * MEDIANS[kind] * float(rng.lognormal(0, noise))))
        records.append(
            CallRecord(
                call_id=f"{seed}.{i}", model="m", arrival_s=float(i), status="ok", type=kind,
                prompt=form.format(subject), prompt_group=f"{kind} {form} {subject}", output_tokens=tokens,
                device="gpu", dispatched_s=float(i), first_token_s=i + 0.1, finished_s=i + 0.5,
            )
        )  # fmt: skip
    return records
