"""Account for, and audit, differential privacy of decentralised learning."""
