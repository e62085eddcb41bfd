"""Responses that run in the background: the client may leave, and the process may die.

They run the same turn as a response in the foreground, under a lease. Their events and their journal are stored before
a client reads them, so that every replica shows the same, and another can go on where one has died.
"""
