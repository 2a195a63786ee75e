"""`python -m unisono` is the command `unisono`, and this is where both start.

The one idea: until the command can say that it was interrupted, Ctrl-C ends the process at once, as it ends any other,
instead of with a traceback through whatever is being imported.
"""

import signal


def main() -> None:
    """The entry point of the command."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # not ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from unisono import check_platform

    check_platform()
    from unisono.cli.main import main as command

    signal.signal(signal.SIGINT, usual)
    command()


if __name__ == "__main__":
    main()
