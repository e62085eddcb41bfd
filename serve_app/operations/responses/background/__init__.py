"""Responses that run in the background, whether their client disconnects or their process dies.

They run the same turn as in the foreground, under a lease. Their events and journal are stored before a client reads
them, so that every replica shows the same, and another can continue after one has died.
"""
