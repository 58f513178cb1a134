"""`python -m hw4cli` is `hw4`."""

try:
    from hw4cli.entry import main
except KeyboardInterrupt:  # Ctrl-C before the handlers are set
    import os

    os.write(2, b"hw4: interrupted\n")
    os._exit(130)

if __name__ == "__main__":
    main()
