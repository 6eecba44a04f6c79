"""Studies of algorithms and claims: what was computed, and pages that say it.

Not a part of what is installed; `reports.study` says how a study is made and run.
"""
