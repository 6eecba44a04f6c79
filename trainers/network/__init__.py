"""Who hears whom: graphs, mixing, push-sum, rounds, and nodes over processes."""
