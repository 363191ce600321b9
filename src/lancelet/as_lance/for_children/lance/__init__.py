"""Leads to lancelet in processes that were started where `lance` is lancelet."""

import lancelet.as_lance  # noqa: F401 - puts another module in the place of this one
