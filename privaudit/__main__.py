"""``python -m privaudit``"""

import os
import sys

from privaudit.cli import main

if __name__ == "__main__":
    status = main()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # one of torchrun's
        from trainers.network.ranks import leave

        leave(status)
    sys.exit(status)
