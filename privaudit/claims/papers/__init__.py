"""The claims of five papers, one file a paper: data only."""
