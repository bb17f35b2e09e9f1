"""`python -m dance_flwr`: the command line."""

from dance_flwr.cli.main import main

if __name__ == "__main__":
    main()
