"""The door for somebody else's model and loss: that a record's gradient is its own.

By construction: the graph of one record of placeholders runs ever after, mapped over
records (``traced``). Or by isolation: one record a call, in a process that ends with
it.
"""
