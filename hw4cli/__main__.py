"""`python -m hw4cli` is `hw4`."""

from hw4cli.entry import main

if __name__ == "__main__":
    main()
