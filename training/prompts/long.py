"""Kinds of single calls without examples: the model decides how long it goes on, and the tail comes from here."""

from __future__ import annotations

from .shots import Bare

EXPLAIN = Bare(
    "explain",
    [
        "Explain {topic} to {audience}.",
        "What is {topic}? Explain it {manner}.",
        "How does {topic} work? Please answer {manner}.",
        "Why does {topic} matter? Tell {audience} {manner}.",
        "I know nothing about {topic}. Help me understand it {manner}.",
        "Describe {topic} {manner} for {audience}.",
    ],
)

STORY = Bare(
    "story",
    [
        "Tell me a story about a {animal} {mood}.",
        "Write a bedtime story in which a {animal} meets {name} in {place}.",
        "Write a tale for children: a {animal}, a {job} and a lost {object}.",
        "Invent a legend from {place} about a {animal} {mood}.",
        "Begin a novel in which {name}, a {job}, finds a strange {object}.",
    ],
)

CODE = Bare(
    "code",
    [
        "Write a {language} function that {program}.",
        "Show me {language} code that {program}.",
        "Implement a small {language} program that {program}. Only code, please.",
        "How would you write a {language} function that {program}? Explain {manner}.",
        "I need a {language} helper that {program}.",
    ],
)

EMAIL = Bare(
    "email",
    [
        "Write an email to {name} about {event}.",
        "Draft a message to our {job} {name} concerning {event}, {manner}.",
        "I have to tell {name} about {event}. Write the letter {manner}.",
        "Answer {name}, who asked about {event}.",
        "Write a reminder for {name} regarding {event}.",
    ],
)

HOW_TO = Bare(
    "how_to",
    [
        "How do I {goal}? Answer {manner}.",
        "Give {audience} advice on how to {goal}.",
        "I want to {goal}. Where do I start?",
        "Write a guide for {audience}: how to {goal}.",
    ],
)

COMPARE = Bare(
    "compare",
    [
        "What is the difference between a {tool} and a {object}?",
        "Compare the work of a {job} with {topic} as a hobby {manner}.",
        "Which is better for {trip}: a {object} or a {tool}?",
        "Would you rather be a {job} or a {animal}? Say why.",
    ],
)

POEM = Bare(
    "poem",
    [
        "Write a poem about {topic}.",
        "Write a rhyme about a {animal} {mood}.",
        "Compose a song for {name}, who is a {job}.",
        "Write a haiku about {place}.",
    ],
)

CHAT = Bare(
    "chat",
    [
        "Hi! I am {name} from {place}. How are you?",
        "I am thinking of buying a {object}. What do you think?",
        "My {animal} will not eat. Any idea?",
        "Good morning, can you help me {goal}?",
        "Tell me something about {place}.",
        "What does a {job} do all day?",
    ],
)

LONG = (EXPLAIN, STORY, CODE, EMAIL, HOW_TO, COMPARE, POEM, CHAT)
