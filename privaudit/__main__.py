"""``python -m privaudit``"""

import sys

from privaudit.cli import main

if __name__ == "__main__":
    sys.exit(main())
