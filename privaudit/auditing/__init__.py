"""From attack scores of runs in two worlds to a lower bound on epsilon."""
