"""Audits of the algorithms here.

plan, presets   the settings of an audit, and those that it starts from
experiment      many runs in two worlds, resumable, also under torchrun
one_run         one run with many canaries; ``one_run_bounds``
looks           when an audit that stops once refuted looks
judgement       from scores to a verdict; ``outcome`` is what it found
reach           what the best attack would show
sweep           many audits from one file: ``sweep_run``, ``sweep_folder``
demo            the demo
"""
