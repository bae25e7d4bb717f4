"""`python -m tilewright`, and the console command: the command line, with an early Ctrl-C said in one line."""

import sys


def main() -> int:
    """Run the command line; importing it takes a tenth of a second, in which Ctrl-C is no traceback either."""
    try:
        from tilewright.cli import main as command_line

        return command_line()
    except KeyboardInterrupt:
        print("tilewright: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
