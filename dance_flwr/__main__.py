"""The command line, as `dance-flwr` and as `python -m dance_flwr`."""


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while its modules load."""
    try:
        from dance_flwr.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
