"""The console script `tpcapture`."""

import signal
import sys

from tpcapture import _native


def main() -> int:
    """Run the command with the process's arguments; its exit status."""
    # The command is native: while it runs no Python frame is there to act on Python's own handlers.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["tpcapture", *sys.argv[1:]])
