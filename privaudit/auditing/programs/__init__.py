"""Audits of anybody's training: functions and commands."""
