"""The same as ``python -m reports.NAME`` for the folder that this file is in."""

import pathlib
import runpy
import sys

if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    sys.path[0] = str(here.parents[1])
    runpy.run_module(f"reports.{here.name}", run_name="__main__")
