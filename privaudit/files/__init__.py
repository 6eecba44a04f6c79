"""Files: JSON, CSV, TOML, run folders, and code of a user's."""
