"""A finished run for people: `load` reads its folder, `page` writes report.html."""
