"""The papers' own formulas, each under its name, beside what is proved of them."""
