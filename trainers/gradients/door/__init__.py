"""The door for somebody else's model and loss: that a record's gradient is its own.

Either by construction: they are traced once, of one record of placeholders, and the
graph of tensor operations that comes of it is what runs ever after, mapped over records
(`trainers.gradients.door.traced`). Or by isolation: one record a call, in a
process that ends with it (`trainers.gradients.door.isolated`).
"""
