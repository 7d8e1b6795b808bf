"""Kinds of single calls shown by examples: a word to a sentence."""

from __future__ import annotations

from . import passages
from .shots import Shown, drawn

YES_NO = Shown(
    "yes_no",
    [
        ("Answer with yes or no.", "{x}"),
        ("You check facts. Say yes or no.", "Question: {x}"),
        ("Reply yes when it is true, no when it is not.", "{x} Yes or no?"),
        ("You are a quiz master who only says yes or no.", "Tell me: {x}"),
        ("Decide each question with yes or no and nothing else.", "{x}"),
        ("Is it so? Say yes or no.", "- {x}"),
    ],
    [
        ("Is a dog an animal?", "yes"),
        ("Is stone soft?", "no"),
        ("Can fish sing opera?", "no"),
        ("Is ice cold?", "yes"),
        ("Do trees have roots?", "yes"),
        ("Is the moon made of cheese?", "no"),
    ],
    drawn(
        "Can a {animal} fly?",
        "Is a {tool} heavier than a {animal}?",
        "Does a {job} need a {tool}?",
        "Is {place} warm in winter?",
        "Would a {object} fit into a pocket?",
        "Is {topic} older than television?",
    ),
)

SENTIMENT = Shown(
    "sentiment",
    [
        ("Label the review as positive or negative.", "{x}"),
        ("You sort customer reviews into positive and negative.", "Review: {x}"),
        ("Is the customer happy? Answer positive or negative.", "Customer: {x}"),
        ("Classify the mood of the message: positive or negative.", "Message: {x}"),
        ("Mark each comment as positive or negative.", "Comment: {x}\nMark:"),
    ],
    [
        ("The soup was cold and the waiter rude.", "negative"),
        ("Lovely room, we will come back.", "positive"),
        ("It stopped working and nobody helped.", "negative"),
        ("Exactly what I needed, and so pretty.", "positive"),
    ],
    passages.review,
)

LABEL = Shown(
    "label",
    [
        ("Name the section of the newspaper.", "{x}"),
        ("Which section does the story belong to?", "Story: {x}"),
        ("You file news into sections.", "{x}\nSection:"),
        ("Give the topic of the text.", "Text: {x}"),
    ],
    [
        ("The striker scored in the last minute.", "sport"),
        ("Shares fell after the bank's report.", "business"),
        ("The orchestra played to a full house.", "culture"),
        ("The minister resigned after the vote.", "politics"),
        ("A new vaccine passed its trial.", "health and science"),
    ],
    passages.news,
)

DEFINE = Shown(
    "define",
    [
        ("Say what the thing is.", "{x}"),
        ("You write a small dictionary.", "Define: {x}"),
        ("Explain the word the way a dictionary does.", "What is a {x}?"),
        ("You help people who learn English.", "What does {x} mean?"),
        ("Write the entry of a glossary.", "{x}:"),
    ],
    [
        ("hammer", "A tool for driving nails."),
        ("bridge", "A structure that carries a road or a path over a river or a valley."),
        ("orchard", "A piece of land where fruit trees are grown."),
        ("clock", "A device that shows the time."),
    ],
    drawn("{tool}", "{object}", "{job}", "{animal}"),
)

POLITE = Shown(
    "polite",
    [
        ("Rewrite the sentence politely.", "{x}"),
        ("Make the message friendly.", "Message: {x}"),
        ("You turn rude demands into kind requests.", "{x}"),
        ("Rephrase it so that nobody is offended.", "Rude: {x}\nKind:"),
        ("Say the same in a courteous way.", "Please rephrase: {x}"),
    ],
    [
        ("Send the letter.", "Could you please send the letter when you have a moment?"),
        ("Be quiet.", "Would you mind being a little quieter, please?"),
        ("Bring me water.", "May I ask you to bring me some water, please?"),
        ("Leave.", "I am afraid I have to ask you to leave now. Thank you for coming."),
    ],
    passages.demand,
)

TRANSLATE = Shown(
    "translate",
    [
        ("Translate into French.", "{x}"),
        ("You are a translator from English to French.", "English: {x}\nFrench:"),
        ("Say it in French.", "How do you say this in French? {x}"),
        ("Give the French version of the sentence.", "Sentence: {x}"),
        ("Put the text into French for our Paris office.", "{x}"),
    ],
    [
        ("The dog runs.", "Le chien court."),
        ("I would like a coffee and a piece of cake.", "Je voudrais un café et une part de gâteau."),
        ("My mother works in the garden.", "Ma mère travaille dans le jardin."),
    ],
    passages.sentence,
)

SHORT = (YES_NO, SENTIMENT, LABEL, DEFINE, POLITE, TRANSLATE)
