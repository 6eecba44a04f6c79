"""``python -m reports.NAME``."""

import sys

from reports.study import main

if __name__ == "__main__":
    sys.exit(main(__package__))
