"""Kinds of single calls shown by examples: sentences to a short paragraph, and small pieces of code."""

from __future__ import annotations

from . import passages
from .shots import Shown, drawn, fill
from .words import PROGRAMS

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
            "A ship lost its way in the fog and ran onto the sand. All sailors were saved. The ship will be "
            "pulled free at high tide.",
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
            "I am very sorry to hear that your lamp was broken. We will send you another today, and you may "
            "keep the old lamp.",
        ),
        ("When do you open?", "We open early in the morning and would be glad to see you."),
        (
            "The chair is too small. I want my money back.",
            "I am sorry that the chair does not fit. Please bring it back with the receipt, and we will return "
            "your money at once.",
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

TEXTS = (HEADLINE, SUMMARY, SQL, JSON, PACK, REPLY, BLURB, QUESTION, COMMIT)
