"""Profiles of hypothesis: the same examples every time, many more at night."""

import os

from hypothesis import settings

# The suite runs in several processes; a torch thread pool in each would fight.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("default", deadline=None, derandomize=True, max_examples=200)
settings.register_profile("nightly", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
