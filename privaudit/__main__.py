"""``python -m privaudit``, and the command ``privaudit``."""

import os
import sys
from typing import NoReturn

from privaudit.cli import main


def run() -> None:
    """Run the command line, and end the process with its status."""
    status = main()
    # Threads of gloo and of FLARE outlive a run, and may wait for others forever.
    many = os.environ.get("WORLD_SIZE", "") not in ("", "0", "1")
    if many or "nvflare" in sys.modules:
        leave(status)
    sys.exit(status)


def leave(status: int) -> NoReturn:
    """End this process at once, with all that it printed.

    gloo's threads may still hold tensors while the interpreter shuts down, where
    anything holds the group (github.com/pytorch/pytorch, pull request 179291); to give
    them back they ask for its lock, and the process aborts. What must be kept is on
    disk by then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
