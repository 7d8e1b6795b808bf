"""Small made-up texts, put together from clauses: reviews, news, sentences, requests. Each draw is new."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .words import NAMES, OBJECTS, PLACES, listed

Rng = np.random.Generator

GOOD = listed(
    """
    works perfectly; feels solid; was worth the money; arrived early; looks lovely; made my week; is so easy to use
    """
)

BAD = listed(
    """
    broke after a week; smells odd; arrived damaged; is far too loud; never worked; lost its colour; feels cheap
    """
)

GOOD_TAIL = listed(
    """
    I would buy it again; my family loves it; highly recommended; the service was kind too; what a find
    """
)

BAD_TAIL = listed(
    """
    I want my money back; nobody answered my emails; avoid it; the shop refused to help; what a waste
    """
)

WHO = listed(
    """
    the mayor; a group of students; the fire brigade; an old sailor; the city council; a young chemist; the museum;
    a pair of brothers; a travelling circus; the railway company; a farmer; the hospital; a retired judge
    """
)

DID = listed(
    """
    opened a new bridge; found a box of old letters; closed the main road; planted a row of lime trees; cancelled
    the summer fair; repaired the clock tower; won a prize for its work; sold a rare painting; started a night
    school; rescued a lost dog; asked for more money; built a small theatre; painted the station green
    """
)

WHERE = listed(
    """
    near the harbour; in the old town; behind the library; at the edge of the forest; on the north side of the
    river; next to the market hall; outside the school; in the valley
    """
)

WHEN = listed(
    """
    on Monday; last night; early in spring; after a long debate; during the storm; without any warning; on a quiet
    Sunday; before the holidays
    """
)

WHY = listed(
    """
    because the old plan had failed; to the surprise of the neighbours; although few people noticed; so that
    visitors would come back; after years of waiting; in spite of the cost; while reporters watched; hoping to help
    the poor
    """
)

THEN = listed(
    """
    Many residents were pleased.; The local paper wrote about it for days.; Work will go on until autumn.; Some
    critics asked who would pay.; Children came to watch.; Nobody was hurt.; A small party was held afterwards.; The
    story spread quickly.; Shops stayed closed that day.; An inquiry will follow.
    """
)

LINKS = listed(
    """
    met; called; wrote to; lent a book to; argued with; had lunch with; sold a car to; waved at; painted a portrait
    of
    """
)

DOING = listed(
    """
    is reading a book; sleeps on the sofa; bought fresh bread; waits for the bus; opened the window; lost the keys;
    drinks cold water; sings in the kitchen; works in a bank; likes green apples; walks to school; fixed the roof;
    wrote a long letter; watches the rain; cooks soup for everybody; forgot the meeting
    """
)

SUBJECTS = listed(
    """
    the cat; my sister; the old man; our teacher; a young doctor; the neighbour; her brother; the child; my friend
    """
)

DEMANDS = listed(
    """
    Send me the file.; Move your car.; Stop talking.; Give me the key.; Fix this bug.; Come here now.; Turn off the
    music.; Pay the bill.; Answer my email.; Clean up this mess.; Show me the report.; Wait outside.; Change the
    date.; Lend me your pen.; Call the customer back.; Close the door.; Redo the slides.; Tell me the price.
    """
)


def pick(rng: Rng, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


def review(rng: Rng) -> str:
    heads, tails = (GOOD, GOOD_TAIL) if rng.random() < 0.5 else (BAD, BAD_TAIL)
    text = f"The {pick(rng, OBJECTS)} {pick(rng, heads)}"
    return f"{text}, {pick(rng, tails)}." if rng.random() < 0.6 else f"{text}."


def news(rng: Rng) -> str:
    text = f"{pick(rng, WHO).capitalize()} {pick(rng, DID)} {pick(rng, WHERE)}"
    if rng.random() < 0.7:
        text += f" {pick(rng, WHEN)}"
    if rng.random() < 0.5:
        text += f", {pick(rng, WHY)}"
    return text + "."


def passage(rng: Rng) -> str:
    """News with a few sentences around it."""
    parts = []
    for _ in range(int(rng.integers(1, 4))):
        parts.append(news(rng))
        if rng.random() < 0.7:
            parts.append(pick(rng, THEN))
    return " ".join(parts)


def people(rng: Rng) -> str:
    """A text that names a few people and what they did to each other."""
    count = int(rng.integers(2, 6))
    names = [NAMES[i] for i in rng.choice(len(NAMES), count, replace=False)]
    steps = [f"{a} {pick(rng, LINKS)} {b}" for a, b in pairwise(names)]
    return f"In {pick(rng, PLACES)}, " + ", and ".join(steps) + "."


def sentence(rng: Rng) -> str:
    text = f"{pick(rng, SUBJECTS)} {pick(rng, DOING)}"
    if rng.random() < 0.35:
        text += f" and {pick(rng, SUBJECTS)} {pick(rng, DOING)}"
    return text[0].upper() + text[1:] + "."


def demand(rng: Rng) -> str:
    return pick(rng, DEMANDS)
