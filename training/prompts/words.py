"""The words that fill the templates: long lists, so that two prompts of one template seldom share all of them."""

from __future__ import annotations


def listed(text: str) -> tuple[str, ...]:
    """The items of a text, which semicolons separate."""
    return tuple(" ".join(item.split()) for item in text.split(";"))


TOPICS = listed(
    """
    photosynthesis; tides; earthquakes; compound interest; vaccines; black holes; recycling; the water cycle;
    inflation; solar panels; bread baking; chess openings; jazz music; the Roman Empire; coral reefs; volcanoes;
    dreams; magnets; electric cars; public libraries; honey bees; glaciers; the human heart; supply and demand;
    lightning; rainbows; fossils; batteries; sleep; gravity; democracy; the printing press; vitamins; satellites;
    soil erosion; urban gardening; poetry; migration of birds; mental health; tourism; robots; online privacy; food
    waste; wind power; ancient Egypt; marathon running; documentary films; antibiotics; the stock market; language
    learning; knitting; astronomy; wetlands; typography; traffic jams; chocolate; mountain rescue; opera;
    beekeeping; the silk road; fermentation; origami; bridges; tea
    """
)

ANIMALS = listed(
    """
    fox; owl; bear; rabbit; turtle; crow; wolf; mouse; heron; badger; dolphin; goat; lizard; sparrow; donkey;
    hedgehog; otter; cat; elephant; squirrel; moth; parrot; seal; beaver; frog; swan; camel; raccoon; penguin; moose
    """
)

MOODS = listed(
    """
    afraid of the dark; tired of winter; in love with music; new in town; bored of being brave; jealous of the moon;
    looking for a lost key; who cannot keep a secret; who wants to fly; too proud to ask for help; late for
    everything; hungry for adventure; missing an old friend; curious about the sea; who collects buttons; learning
    to paint
    """
)

PLACES = listed(
    """
    Lisbon; Oslo; Kyoto; the Alps; a small island; Nairobi; the desert; Prague; a lakeside cabin; Vancouver; Mumbai;
    the old harbour; Edinburgh; Lima; a mountain village; Hanoi; the north coast; Seville; Reykjavik; a forest camp;
    Cairo; Melbourne; the wine country; Boston; Tallinn; a fishing town; Zagreb; Montreal; the river valley; Athens
    """
)

NAMES = listed(
    """
    Anna; Bruno; Carla; David; Elena; Farid; Grace; Hugo; Ines; Jamal; Karin; Leo; Maria; Nadia; Omar; Petra;
    Quentin; Rosa; Samir; Tara; Ulrich; Vera; Wanda; Xavier; Yusuf; Zoe; Amir; Bella; Chen; Dora; Emil; Fiona;
    Goran; Hana; Igor; Julia; Kofi; Lena; Marco; Nora
    """
)

OBJECTS = listed(
    """
    umbrella; lamp; kettle; backpack; bicycle; camera; pillow; notebook; headphones; frying pan; desk; raincoat;
    blender; wrist watch; toaster; suitcase; keyboard; tent; mirror; drill; sofa; scarf; water bottle; printer;
    guitar; blanket; phone case; garden hose; coffee grinder; hammock; alarm clock; bookshelf; running shoes;
    telescope; wallet; candle; sewing machine; ladder; skateboard; thermometer
    """
)

TOOLS = listed(
    """
    compass; hammer; violin; microscope; anchor; loom; lantern; stethoscope; saddle; telescope; trowel; kayak;
    barometer; chisel; flute; helmet; oven; pulley; rope; sundial; thermometer; umbrella; whistle; zipper; abacus;
    bellows; crane; drum; easel; funnel
    """
)

GOALS = listed(
    """
    organise a birthday party; move to a new flat; plant a vegetable garden; learn to cook; repair an old bicycle;
    write a family cookbook; prepare for a job interview; start a book club; clean out the attic; train for a long
    run; plan a school trip; open a small bakery; build a tree house; save money for a holiday; welcome a new puppy;
    set up a home office; host a board game night; launch a newsletter; restore a wooden chair; organise a charity
    sale; paint the kitchen; start a compost heap; make a short film; teach a child to swim; plan a wedding; hire a
    new colleague; run a science fair; prepare a picnic; sell an old car; begin a diary; get ready for winter; open
    a web shop; learn the guitar; start a neighbourhood choir; tidy the garage; prepare a lecture; go camping with
    friends; photograph birds; reduce food waste at home; translate a poem
    """
)

TRIPS = listed(
    """
    a beach holiday; a hiking weekend; a business trip; a camping trip; a sailing trip; a music festival; a day at
    the zoo; a long train ride; a winter cabin; a road trip; a wedding abroad; a rainy city break; a fishing day; a
    bicycle tour; a school camp; a night at the airport; a mountain climb; a spa weekend; a visit to grandparents; a
    photo safari
    """
)

JOBS = listed(
    """
    baker; nurse; teacher; plumber; lawyer; carpenter; pilot; farmer; librarian; electrician; translator; gardener;
    chef; designer; accountant; journalist; mechanic; pharmacist; tailor; architect
    """
)

PROGRAMS = listed(
    """
    reverses a string; counts the vowels in a text; checks whether a word is a palindrome; finds the largest number
    in a list; removes duplicates from a list; computes the factorial of a number; merges a pair of sorted lists;
    counts words in a file; converts Celsius to Fahrenheit; flattens a nested list; checks whether a number is
    prime; sorts names by length; reads a CSV file; computes the mean of a list; finds common elements of a pair of
    lists; capitalises each word; draws a random password; validates an email address; computes the Fibonacci
    sequence; groups words by first letter; rotates a matrix; parses a date; simulates a coin toss; downloads a web
    page; finds the longest word in a sentence
    """
)

LANGUAGES = listed(
    """
    Python; JavaScript; Java; Rust; Go; Ruby
    """
)

AUDIENCES = listed(
    """
    a child; a beginner; a new colleague; a curious neighbour; an expert; my grandmother; a busy manager; a student
    """
)

MANNERS = listed(
    """
    in plain words; briefly; in depth; with an example; step by step; as simply as you can; carefully and
    thoroughly; in a friendly tone; very concisely; with all the important details
    """
)

EVENTS = listed(
    """
    the delayed delivery; next week's meeting; a broken heater; the signed contract; a missed lesson; the summer
    party; an unpaid invoice; the new timetable; a lost parcel; a change of address; the garden fence; a job
    application; the school concert; a wrong order; the team lunch; a hotel booking
    """
)

FILLERS: dict[str, tuple[str, ...]] = {
    "topic": TOPICS,
    "animal": ANIMALS,
    "mood": MOODS,
    "place": PLACES,
    "name": NAMES,
    "object": OBJECTS,
    "tool": TOOLS,
    "goal": GOALS,
    "trip": TRIPS,
    "job": JOBS,
    "program": PROGRAMS,
    "language": LANGUAGES,
    "audience": AUDIENCES,
    "manner": MANNERS,
    "event": EVENTS,
}
