"""Workflows that are a chain of two to four calls."""

from __future__ import annotations

from . import passages
from .short import POLITE, SENTIMENT, TRANSLATE
from .shots import Shown, drawn
from .steps import ARTICLE
from .texts import HEADLINE, REPLY, SUMMARY

Chain = tuple[Shown, ...]

DRAFT = Shown(
    "draft",
    [
        ("Write a first draft.", "{x}"),
        ("You write for the newsletter of a town.", "Please write about {x}."),
        ("Write a note.", "Note: {x}"),
    ],
    [
        (
            "the summer fair",
            "The summer fair is back! Come to the meadow behind the church, bring your friends, and enjoy "
            "music, cake and games.",
        ),
        ("lost keys", "A bunch of keys was found near the fountain. Ask at the town hall."),
    ],
    drawn("{event}", "{topic}", "{trip} in {place}", "a lost {object}"),
    least=1,
    most=2,
)
CRITIQUE = Shown(
    "critique",
    [
        ("Say what could be better.", "{x}"),
        ("You are a strict but fair critic.", "Text: {x}\nCritique:"),
        ("What is missing?", "{x}"),
    ],
    [
        ("Come to our party.", "It does not say when and where the party is."),
        ("The keys was found near a fountain.", "There is a mistake in the grammar, and it should say whom to ask."),
    ],
    lambda rng: "",
)
ANSWER = Shown(
    "answer",
    [
        ("Answer from the text.", "{x}"),
        ("You read reports and say what they mean for readers.", "Report: {x}"),
        ("What should we do now?", "{x}"),
    ],
    [
        ("The bridge is closed until spring.", "Take the road along the lake until the bridge opens again."),
        ("The school won a prize for its garden.", "Congratulate the school and visit its garden."),
    ],
    passages.passage,
)

assert ARTICLE.polish is not None
CHAINS: tuple[Chain, ...] = (
    (DRAFT, CRITIQUE, ARTICLE.polish),
    (DRAFT, ARTICLE.polish, HEADLINE),
    (SUMMARY, HEADLINE, TRANSLATE),
    (SUMMARY, ANSWER),
    (ANSWER, POLITE, TRANSLATE),
    (REPLY, SENTIMENT),
    (DRAFT, SUMMARY, ANSWER, ARTICLE.polish),
)
