"""The steps of the workflows that fan out: a plan that comes back as a list, a call per item, a merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .shots import Shown, drawn


@dataclass(frozen=True, slots=True)
class FanOut:
    """plan : x -> a list; item : an item of x -> text; merge : all those texts -> text; polish : text -> text."""

    plan: Shown
    item: Shown
    merge: Shown
    polish: Shown | None = None
    joint: str = "{item} ({x})"  # how an item is put to the item step


def merging(name: str, examples: Sequence[tuple[str, str]], *templates: tuple[str, str]) -> Shown:
    return Shown(name, templates, examples, lambda rng: "", least=1, most=2)


TASKS = FanOut(
    Shown(
        "plan_tasks",
        [
            ("You break a goal into tasks.", "Goal: {x}"),
            ("Write the to-do list.", "I want to {x}."),
            ("You are a planner who writes lists with dashes.", "Plan this: {x}"),
            ("List the steps.", "How do I {x}?"),
        ],
        [
            ("clean the cellar", "- sort the tools\n- sweep the floor\n- throw away old paint"),
            (
                "repaint the bedroom",
                "- buy paint\n- cover the furniture\n- sand the walls\n- apply the first coat\n- let it dry",
            ),
            ("bake a cake", "- mix the dough\n- heat the oven"),
            ("learn to swim", "- find a pool\n- practise floating\n- learn to breathe\n- take a course"),
        ],
        drawn("{goal}", "{goal} with {name}", "help {name} to {goal}"),
        most=3,
    ),
    Shown(
        "task_tip",
        [
            ("Give a tip for the task.", "{x}"),
            ("You are a helpful neighbour. Say how to do it well.", "Task: {x}"),
            ("Tell the beginner what to look out for.", "I am about to do this: {x}"),
            ("Write the advice that goes with the task.", "{x}\nAdvice:"),
        ],
        [
            (
                "sweep the floor (clean the cellar)",
                "Start in the far corner and move toward the door so that the dust does not spread.",
            ),
            ("buy paint (repaint the bedroom)", "Take a sample of the wall with you and choose a washable paint."),
            (
                "practise floating (learn to swim)",
                "Stay where you can stand. Lean back, spread your arms, breathe calmly, and let the water carry "
                "you. Ask a friend to stay close.",
            ),
        ],
        lambda rng: "",
    ),
    merging(
        "task_merge",
        [
            (
                "- sort the tools: Hang them on the wall.\n- sweep the floor: Start in the far corner.",
                "Hang the tools on the wall first, then sweep the floor from the far corner.",
            ),
            (
                "- buy paint: Take a sample with you.\n- sand the walls: Wear a mask.\n- apply the first coat: "
                "Work from top to bottom.",
                "Take a sample of the wall when you buy the paint. Wear a mask while you sand, and then paint "
                "from top to bottom.",
            ),
        ],
        ("Write a paragraph from the notes.", "{x}"),
        ("Turn the tips into a plan.", "Tips:\n{x}\nPlan:"),
        ("Sum up the advice for a friend.", "{x}"),
    ),
)

SIGHTS = FanOut(
    Shown(
        "plan_sights",
        [
            ("You list what to see.", "{x}"),
            ("You are a travel guide. Answer with a list.", "What should we see in {x}?"),
            ("Name sights with a dash before each.", "Sights of {x}:"),
            ("Write down the stops of the tour.", "A tour of {x}"),
        ],
        [
            ("Rome", "- the Colosseum\n- the Pantheon\n- Trevi Fountain\n- the Vatican Museums"),
            ("London", "- Tower Bridge\n- the British Museum\n- Hyde Park"),
            ("a lake in Finland", "- the sauna\n- the boat house"),
        ],
        drawn("{place}", "{place} in winter", "{place} with children", "{place} on {trip}"),
        most=3,
    ),
    Shown(
        "sight_note",
        [
            ("Write a note for the travel guide.", "{x}"),
            ("Why is it worth a visit?", "{x}"),
            ("Describe the sight for a brochure.", "Sight: {x}\nText:"),
            ("You talk to tourists on a bus.", "On your left: {x}"),
        ],
        [
            ("the Colosseum (Rome)", "A huge arena where gladiators fought before the eyes of all Rome."),
            (
                "Hyde Park (London)",
                "A wide green park in the middle of the city. People row on the lake, listen to speakers at the "
                "corner, and rest under old trees.",
            ),
            ("the sauna (a lake in Finland)", "Sweat by the fire, then jump into the cold lake."),
        ],
        lambda rng: "",
    ),
    merging(
        "visit_merge",
        [
            (
                "- Tower Bridge: It opens for ships.\n- Hyde Park: A green park with a lake.",
                "See Tower Bridge in the morning, when it opens for ships, and spend the afternoon in Hyde Park.",
            ),
            (
                "- the sauna: Sweat by the fire.\n- the boat house: Rent a boat.",
                "Rent a boat first. In the evening, warm up in the sauna.",
            ),
        ],
        ("Make a plan for the day.", "{x}"),
        ("Write the programme of the tour.", "Stops:\n{x}\nProgramme:"),
        ("Suggest how to spend the day.", "{x}"),
    ),
)

QUIZ = FanOut(
    Shown(
        "plan_questions",
        [
            ("You write lists of questions.", "{x}"),
            ("You are a teacher. List what to ask the class.", "Topic: {x}"),
            ("What should we find out? Write a list.", "{x}"),
            ("Prepare the interview as a list of questions.", "About {x}"),
        ],
        [
            ("rain", "- Where does rain come from?\n- Why are clouds grey?\n- What is hail?"),
            ("money", "- Who prints money?\n- What is a bank?\n- Why do prices rise?\n- What is debt?"),
            ("the sun", "- How hot is the sun?\n- Why does it shine?"),
        ],
        drawn("{topic}", "{topic}", "the {animal}", "the work of a {job}"),
        most=3,
    ),
    Shown(
        "quiz_answer",
        [
            ("Answer the question.", "{x}"),
            ("You are a patient teacher.", "Pupil: {x}"),
            ("You answer children's questions.", "{x}"),
            ("Write the answer for the textbook.", "Question: {x}\nAnswer:"),
        ],
        [
            (
                "Where does rain come from? (rain)",
                "Rain comes from clouds, where water drops grow until they are too heavy to float.",
            ),
            ("Who prints money? (money)", "The central bank."),
            (
                "Why do prices rise? (money)",
                "Prices rise when people want to buy more than there is to sell, or when it costs more to make "
                "things. Shops then ask for more.",
            ),
        ],
        lambda rng: "",
    ),
    merging(
        "quiz_review",
        [
            (
                "- What is a bank?: A place that keeps money.\n- What is debt?: Money that you owe.",
                "A bank keeps money, and money that you owe is called debt.",
            ),
            ("- Why does the sun shine?: It burns gas.", "The sun shines because it turns gas into light and heat."),
        ],
        ("Sum up what was learned.", "{x}"),
        ("Write the text on the blackboard.", "{x}"),
        ("Turn questions and answers into a text.", "Notes:\n{x}\nText:"),
    ),
)

ARTICLE = FanOut(
    Shown(
        "outline",
        [
            ("You outline articles.", "{x}"),
            ("Write the headings of the article.", "Article: {x}"),
            ("List the chapters.", "A booklet about {x}"),
            ("You plan blog posts with a dash before each part.", "Post about {x}"),
        ],
        [
            ("cheese", "- A short history\n- How cheese is made\n- Storing it well"),
            ("running", "- Why run\n- The right shoes\n- A plan for beginners\n- Avoiding injuries"),
            ("tomatoes", "- Planting\n- Watering and care"),
        ],
        drawn("{topic}", "{topic} for {audience}", "how to {goal}", "the life of a {job}"),
        most=3,
    ),
    Shown(
        "section",
        [
            ("Write the section.", "{x}"),
            ("You are a journalist. Write the part of the article.", "Heading: {x}"),
            ("Write the text under the heading.", "{x}\nText:"),
            ("You write for a magazine.", "Please write this part: {x}"),
        ],
        [
            (
                "How cheese is made (cheese)",
                "Cheese begins with fresh milk. The dairy warms it and adds rennet, and soon it sets. The curd "
                "is cut, drained, pressed into "
                "moulds and salted. Then it rests in a cool cellar, where it slowly gains its taste. Hard "
                "cheese may stay there for years.",
            ),
            (
                "The right shoes (running)",
                "Good shoes protect your knees. Go to a shop where you can try them on, take your time, and "
                "walk around in them. "
                "They should feel comfortable at once.",
            ),
        ],
        lambda rng: "",
        least=1,
        most=2,
    ),
    merging(
        "abstract",
        [
            (
                "- Planting: Plant tomatoes in May.\n- Watering and care: Water them at the root.",
                "This article shows how to plant tomatoes in May and how to water them.",
            ),
            (
                "- Why run: It is good for the heart.\n- The right shoes: Try them on.",
                "Running keeps the heart healthy. We explain how to begin, and which shoes to choose.",
            ),
        ],
        ("Write the abstract.", "{x}"),
        ("Introduce the article to the reader.", "{x}"),
        ("Write what stands on the back cover.", "Parts:\n{x}\nCover:"),
    ),
    polish=Shown(
        "edit",
        [
            ("You are an editor. Improve the text.", "{x}"),
            ("Make the text shorter and clearer.", "Draft: {x}\nBetter:"),
            ("Correct and tighten the paragraph.", "{x}"),
        ],
        [
            (
                "Bees is very useful animals, they makes honey and honey is sweet.",
                "Bees are useful animals that make sweet honey.",
            ),
            ("The bridge, which is old, was built a long time ago.", "The bridge is old."),
        ],
        lambda rng: "",
    ),
)

FAN_OUTS = {"tasks": TASKS, "sights": SIGHTS, "quiz": QUIZ, "article": ARTICLE}
