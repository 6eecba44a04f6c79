"""Ledgers from and to the tools of others, each imported only when it is used.

    opacus      ledgers of histories; a callback and a folder for a training
    lightning   a callback around `privaudit.oracle` or Opacus

dp-accounting's events are `privaudit.accounting.events`; docs/integrations.md has all.
"""
