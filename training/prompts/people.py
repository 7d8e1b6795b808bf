"""The steps of the workflow that extracts people from a text, verifies them and reports."""

from __future__ import annotations

from . import passages
from .shots import Shown
from .steps import merging

EXTRACT = Shown(
    "extract",
    [
        ("List the people named in the text.", "{x}"),
        ("You find names and write each on its own line with a dash.", "Text: {x}\nNames:"),
        ("Who takes part? Write a list.", "{x}"),
        ("Extract the persons.", "Report: {x}"),
    ],
    [
        ("Tim met Bob at the station and they called Sue.", "- Tim\n- Bob\n- Sue"),
        ("In Bern, Eva thanked Paul.", "- Eva\n- Paul"),
        ("Olga sang while Max, Lisa and Ruth danced with Ali.", "- Olga\n- Max\n- Lisa\n- Ruth\n- Ali"),
    ],
    passages.people,
    most=3,
)
VERIFY = Shown(
    "verify",
    [
        ("Is the person named in the text? Say yes or no.", "{x}"),
        ("You check lists against a text.", "{x}\nNamed?"),
        ("Confirm or deny.", "{x}"),
        ("Check whether the name stands in the report.", "{x} Correct?"),
    ],
    [
        ("Tim - Tim met Bob at the station.", "yes"),
        ("Ken - In Bern, Eva thanked Paul.", "no"),
        ("Ruth - Max and Ruth danced.", "yes"),
    ],
    lambda rng: "",
)
ROLE = Shown(
    "role",
    [
        ("Say what the person did.", "{x}"),
        ("What does the text say of the person?", "{x}"),
        ("You write notes about people.", "Note on {x}"),
    ],
    [
        ("Tim - Tim met Bob at the station and they called Sue.", "Tim met Bob and called Sue."),
        ("Paul - In Bern, Eva thanked Paul.", "Paul was thanked by Eva in Bern."),
        ("Ali - Olga sang while Max danced with Ali.", "Ali danced with Max."),
    ],
    lambda rng: "",
)
REPORT = merging(
    "people_report",
    [
        (
            "- Tim: Tim met Bob.\n- Bob: Bob was met.\n- Sue: Sue was called.",
            "Tim met Bob, and together they called Sue.",
        ),
        ("- Eva: yes\n- Paul: yes", "Both Eva and Paul are named."),
    ],
    ("Write a report from the notes.", "{x}"),
    ("Put the findings into words.", "Findings:\n{x}\nReport:"),
    ("Tell the chief what was found.", "{x}"),
)
