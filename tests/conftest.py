"""Profiles of hypothesis, and one torch thread: the suite runs in several processes."""

import os

from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True, max_examples=200)
settings.register_profile("nightly", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
