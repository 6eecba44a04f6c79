"""Audits of the algorithms here: settings, runs, verdict; sweeps; over ranks."""
