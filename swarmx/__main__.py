"""`python -m swarmx`: the same as the console script."""

from swarmx.cli import main

main()
