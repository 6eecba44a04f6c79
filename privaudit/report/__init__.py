"""A finished run for people: `load` reads its folder, `page` writes report.html.

`load` needs neither torch nor the extra `report`.
"""
