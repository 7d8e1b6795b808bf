"""Kinds of single calls whose form is shown by examples: from a word to a short paragraph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import passages
from .shots import Shown, fill
from .words import PROGRAMS

Rng = np.random.Generator


def drawn(*templates: str) -> Callable[[Rng], str]:
    """A function that fills one of the templates."""

    def draw(rng: Rng) -> str:
        return fill(rng, str(rng.choice(templates)))

    return draw


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

HEADLINE = Shown(
    "headline",
    [
        ("Write a headline for the text.", "{x}"),
        ("You are the editor of a local paper and find headlines.", "Article: {x}\nHeadline:"),
        ("Give the news item a title.", "News: {x}"),
        ("Find a catchy title.", "{x}\nTitle:"),
    ],
    [
        (
            "The old mill by the lake burned down on Friday night. Nobody was hurt, but the owner wept.",
            "Old Mill by the Lake Burns Down",
        ),
        ("A class of pupils cleaned the beach before breakfast.", "Pupils Clean Beach Before Breakfast"),
        ("The bakery on the square will stay open all night.", "Night Bread: Bakery Never Closes"),
    ],
    passages.passage,
)

SUMMARY = Shown(
    "summary",
    [
        ("Sum up the text.", "{x}"),
        ("You write summaries for busy readers.", "Text: {x}\nSummary:"),
        ("Tell me what the text says.", "{x}"),
        ("What happened? Tell it shortly.", "Report: {x}"),
        ("Give the gist of the story.", "Story: {x}\nGist:"),
    ],
    [
        (
            "The council met on Tuesday to talk about the park. After a long debate it decided to plant new trees. "
            "Some residents were worried about the cost.",
            "The council will plant new trees in the park, though some worry about the cost.",
        ),
        (
            "A ship lost its way in the fog and ran onto the sand. All sailors were saved. The ship will be pulled free at high tide.",
            "A ship ran aground in fog. The crew is safe and the ship will be freed at high tide.",
        ),
    ],
    passages.passage,
    least=1,
    most=2,
)

SQL = Shown(
    "sql",
    [
        ("Write the SQL query.", "{x}"),
        ("You turn questions into SQL.", "Question: {x}\nSQL:"),
        ("You know the shop's database. Answer with a query.", "{x}"),
        ("Give the SQL for the request.", "Request: {x}"),
    ],
    [
        ("all customers from Paris", "SELECT * FROM customers WHERE city = 'Paris';"),
        ("how many orders there are", "SELECT COUNT(*) FROM orders;"),
        (
            "names of customers who ordered a lamp",
            "SELECT DISTINCT c.name FROM customers c JOIN orders o ON o.customer_id = c.id WHERE o.item = 'lamp';",
        ),
        ("the cheapest product", "SELECT name, MIN(price) FROM products GROUP BY name;"),
    ],
    drawn(
        "all customers from {place}",
        "orders for a {object}",
        "the name and price of each {object}",
        "customers named {name} who bought a {object}",
        "the average price of a {object}",
        "all orders by {name} sorted by date",
    ),
)

JSON = Shown(
    "json",
    [
        ("Turn the order into JSON.", "{x}"),
        ("You read orders and write JSON.", "Order: {x}\nJSON:"),
        ("Extract the fields as JSON.", "{x}"),
        ("Parse the message for our database.", "Message: {x}"),
    ],
    [
        ("Tom in Bath wants a red lamp.", '{"customer": "Tom", "city": "Bath", "item": "lamp", "colour": "red"}'),
        ("A chair, please. I am Eva.", '{"customer": "Eva", "item": "chair"}'),
        (
            "Max from Rome needs a tent by Friday.",
            '{"customer": "Max", "city": "Rome", "item": "tent", "due": "Friday"}',
        ),
    ],
    drawn(
        "{name} in {place} wants a {object}.",
        "{name} here, I need a {object} and a {tool}.",
        "Please send a green {object} to {name} in {place}.",
        "{name} would like to return a {object}.",
    ),
)

PACK = Shown(
    "pack_list",
    [
        ("You write short lists.", "What should I pack for {x}?"),
        ("You help people pack.", "I am off on {x}. What do I need?"),
        ("Write what to take along.", "Packing for {x}:"),
        ("Give a list with a dash before each thing.", "Things for {x}"),
    ],
    [
        ("a ski trip", "- gloves\n- goggles\n- thermal socks\n- helmet"),
        ("a birthday party", "- cake\n- candles\n- balloons"),
        ("a day in the garden", "- gloves\n- spade\n- seeds\n- watering can\n- hat\n- sun cream"),
        ("a night at a hotel", "- toothbrush\n- pyjamas"),
    ],
    drawn("{trip}", "{trip} near {place}", "{trip} with {name}"),
)

REPLY = Shown(
    "support_reply",
    [
        ("You answer customers of a shop.", "{x}"),
        ("You are a kind support agent.", "Customer: {x}\nAgent:"),
        ("Reply to the complaint.", "Complaint: {x}"),
        ("Write the answer of our service desk.", "A customer writes: {x}"),
    ],
    [
        (
            "My lamp arrived broken.",
            "I am very sorry to hear that your lamp was broken. We will send you another today, and you may keep the old lamp.",
        ),
        ("When do you open?", "We open early in the morning and would be glad to see you."),
        (
            "The chair is too small. I want my money back.",
            "I am sorry that the chair does not fit. Please bring it back with the receipt, and we will return your money at once.",
        ),
    ],
    lambda rng: (
        passages.review(rng) if rng.random() < 0.6 else fill(rng, "Do you have a {object} that is good for {trip}?")
    ),
    least=1,
    most=2,
)

BLURB = Shown(
    "product_blurb",
    [
        ("Write a product description.", "{x}"),
        ("You write the catalogue of a shop.", "Product: {x}\nText:"),
        ("Advertise the thing.", "Sell me this: {x}"),
        ("Praise the product for our web shop.", "{x}"),
    ],
    [
        (
            "wool blanket",
            "Wrap yourself in pure warmth. This soft wool blanket keeps out the cold on the longest winter night, "
            "folds away in seconds, and grows softer with every wash.",
        ),
        (
            "steel mug",
            "A mug for life. It keeps coffee hot for hours, survives every fall, and fits under any machine.",
        ),
    ],
    drawn("{object}", "{object} for {trip}", "{object} for a {job}"),
    least=1,
    most=2,
)

QUESTION = Shown(
    "quiz_question",
    [
        ("Write a quiz question about the topic.", "{x}"),
        ("You prepare a pub quiz.", "Topic: {x}\nQuestion:"),
        ("Ask a pupil about the subject.", "Subject: {x}"),
        ("Think of a good question for an interview.", "Theme: {x}"),
    ],
    [
        ("oceans", "Which ocean is the largest?"),
        ("music", "Which instrument has black and white keys and strings inside?"),
        ("space", "Why does the moon seem to change its shape during the month?"),
    ],
    drawn("{topic}", "{topic}", "the {animal}", "the work of a {job}"),
)

COMMIT = Shown(
    "commit_message",
    [
        ("Write the commit message.", "{x}"),
        ("You write commit messages for a team.", "Change: {x}\nMessage:"),
        ("Name the change in the style of our repository.", "I changed this: {x}"),
    ],
    [
        ("the function now checks that the list is not empty", "Check for an empty list"),
        ("renamed the class, and its tests", "Rename the class and its tests"),
        ("users can log in with a code that we send by mail", "Add login by a mailed code"),
    ],
    lambda rng: (
        f"a function that {rng.choice(PROGRAMS)} was "
        + str(rng.choice(["added", "made faster", "fixed", "removed", "documented"]))
    ),
)

SHORT = (
    YES_NO,
    SENTIMENT,
    LABEL,
    DEFINE,
    POLITE,
    TRANSLATE,
    HEADLINE,
    SUMMARY,
    SQL,
    JSON,
    PACK,
    REPLY,
    BLURB,
    QUESTION,
    COMMIT,
)
