"""Constant pages: all values are null or equal, and only levels are stored.

    page of 5 nulls                        no buffers
    page of [7, 7, null], value 07000000   definition 0 0 1
    page of [[null], [], null]             repetition 1 1 1, definition 1 3 2

A value of up to 32 bytes is in the message. Longer values, and all strings, are in a buffer before
the levels (see `value`).

Level buffers are read entirely, even for a few rows; they are small.
"""
