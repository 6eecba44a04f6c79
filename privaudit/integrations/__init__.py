"""Ledgers from and to the tools of others, each imported only when it is used."""
