"""How near a call's tools are to its text: cosines between embeddings, for encoders that compare sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.bundle import read_json
from swarmx.predict.features import Features
from swarmx.predict.tools import described

Floats = NDArray[np.float32]
NEAR = 4  # columns: the best cosine, by how much it is ahead, mean and deviation over the tools


def near_of(directory: Path) -> int:
    """How many columns the encoder in a model directory tells of tools: `NEAR`, or none."""
    return NEAR if read_json(directory / "encoder.json").get("tools") else 0


def embedded(found: Features, embed: Callable[[Sequence[str]], Floats], tools: bool) -> Floats:
    """What a head is given of calls' texts, (N, E), and with `tools` behind it how near their tools are, (N, E + NEAR).

    embed : texts -> embeddings (N, E); each different tool is embedded once
    """
    texts = embed(found.texts)
    if not tools:
        return texts
    of_list = {given: described(given) for given in dict.fromkeys(found.tools)}
    place = {text: i for i, text in enumerate(dict.fromkeys(text for own in of_list.values() for text in own))}
    rows = embed(list(place)) if place else texts[:0]
    lists = {given: rows[[place[text] for text in own]] for given, own in of_list.items() if own}
    near = [nearness(text, lists.get(given)) for text, given in zip(texts, found.tools, strict=True)]
    return np.hstack((texts, np.array(near, np.float32).reshape(-1, NEAR)))


def nearness(text: Floats, tools: Floats | None) -> Floats:
    """`NEAR` figures from the embeddings of a text (E,) and of its tools (M, E); zeros without tools."""
    if tools is None:
        return np.zeros(NEAR, np.float32)
    near = np.sort(_unit(tools) @ _unit(text))[::-1]
    ahead = near[0] - near[1] if len(near) > 1 else 0.0
    return np.array([near[0], ahead, near.mean(), near.std()], np.float32)


def _unit(x: Floats) -> Floats:
    scaled: Floats = x / (np.linalg.norm(x, axis=-1, keepdims=True) + 1e-9)
    return scaled
