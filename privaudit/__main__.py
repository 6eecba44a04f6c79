"""``python -m privaudit``, and the command ``privaudit``."""

import os
import sys

from privaudit.cli import main


def run() -> None:
    """Run the command line, and end the process with its status."""
    status = main()
    # Threads of gloo and of FLARE outlive a run, and may wait for others forever.
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or "nvflare" in sys.modules:
        from trainers.network.ranks import leave

        leave(status)
    sys.exit(status)


if __name__ == "__main__":
    run()
