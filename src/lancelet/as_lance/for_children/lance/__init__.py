"""Redirects `import lance` to lancelet in child processes."""

import lancelet.as_lance  # noqa: F401 - replaces this module
