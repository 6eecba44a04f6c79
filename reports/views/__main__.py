"""Runs the study of this folder; `reports.study` has the options."""

import pathlib
import sys

from reports.study import main

if __name__ == "__main__":
    sys.exit(main(pathlib.Path(__file__).parent.name))
