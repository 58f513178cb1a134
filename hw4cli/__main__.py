"""`python -m hw4cli` is `hw4`."""

from hw4cli.cli import main

main()
