"""`python -m emobench`."""

from emobench.cli import main

main()
