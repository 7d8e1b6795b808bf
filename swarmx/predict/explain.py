"""Why a prediction is what it is: the call type it is nearest to, and what each part of the input moves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from swarmx.predict.runtime import Predictor
from swarmx.predict.targets import TOKENS
from swarmx.predict.text import text_of
from swarmx.quantiles import LEVELS
from swarmx.types import Call

MEDIAN = int(np.searchsorted(LEVELS, 0.5))
PIECES = 12  # stretches of the prompt that are left out one at a time


@dataclass(frozen=True, slots=True)
class Reason:
    """nearest_type : the log's call type whose quantiles are nearest to the predicted ones (mean gap of logs), or None
    moves : (what was left out, median without it over median with it), strongest first"""

    nearest_type: str | None
    moves: tuple[tuple[str, float], ...]


def explain(predictor: Predictor, call: Call, shown: int = 4) -> Reason:
    """Compare with the types of the training log, and predict again with parts of the call left out."""
    own = predictor.grids([call]).of(TOKENS)[0]
    types = predictor.fallback[TOKENS].groups
    gaps = {str(name): float(np.abs(np.log1p(grid) - np.log1p(own)).mean()) for name, grid in types.items()}
    nearest = min(gaps, key=lambda name: gaps[name]) if gaps else None
    variants = _ablations(call)
    medians = predictor.grids([variant for _, variant in variants]).of(TOKENS)[:, MEDIAN] if variants else np.zeros(0)
    moves = [(name, float((m + 1) / (own[MEDIAN] + 1))) for (name, _), m in zip(variants, medians, strict=True)]
    moves.sort(key=lambda move: -abs(np.log(move[1])))
    return Reason(nearest, tuple(moves[:shown]))


def _ablations(call: Call) -> list[tuple[str, Call]]:
    """The call without its type, without its text, and without each of a few stretches of words."""
    out = [("the type", replace(call, type=None))] if call.type else []
    words = text_of(call.prompt).split()
    if not words:
        return out
    out.append(("the whole prompt", replace(call, prompt="")))
    size = max(1, -(-len(words) // PIECES))
    for start in range(0, len(words), size):
        rest = " ".join(words[:start] + words[start + size :])
        piece = " ".join(words[start : start + size])
        out.append((f"“{piece if len(piece) <= 40 else piece[:39] + '…'}”", replace(call, prompt=rest)))
    return out
