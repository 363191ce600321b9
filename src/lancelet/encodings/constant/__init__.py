"""Constant pages: every value is null, or every value is the same, and only levels are stored.

    page of 5 nulls                        nothing
    page of [7, 7, null], value 07000000   definition 0 0 1
    page of [[null], [], null]             repetition 1 1 1, definition 1 3 2

A value of up to 32 bytes is in the message. A longer one, and any string, is in a buffer before
those of the levels (see `value`).

Levels are whole buffers, so reading some rows reads them all; they are small.
"""
