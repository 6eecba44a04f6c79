"""Audits of user programs: functions and commands."""
