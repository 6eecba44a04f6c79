"""Profiles of hypothesis: the same examples every time, many more at night."""

from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True, max_examples=200)
settings.register_profile("nightly", deadline=None, max_examples=5000)
settings.load_profile("default")
