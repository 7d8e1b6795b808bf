"""For all tests: how quick a thing is belongs in a benchmark, and the first example of a law may compile a loop."""

from hypothesis import settings

settings.register_profile("swarmx", settings(), deadline=None)
settings.load_profile("swarmx")
