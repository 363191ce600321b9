"""Finding the region of an S3 bucket that nobody named: S3 says it to whoever asks."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from typing import Final

_TIMEOUT_SECONDS: Final = 5.0


def bucket_region(
    bucket: str, *, head: Callable[[str], Message | None] | None = None
) -> str | None:
    """Return the region that a bucket lies in, or None when S3 cannot be asked.

    `head` sends a HEAD request and returns the headers of the answer, whatever its status.

    >>> headers = Message()
    >>> headers["x-amz-bucket-region"] = "eu-west-1"
    >>> bucket_region("shelf", head=lambda url: headers)
    'eu-west-1'
    """
    # Path style, because a name with dots has no certificate of its own.
    headers = (head or _head)(f"https://s3.amazonaws.com/{bucket}")
    return None if headers is None else headers.get("x-amz-bucket-region")


def _head(url: str) -> Message | None:
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310  # the URL is our own
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310  # the same
            headers: Message = answer.headers
            return headers
    except urllib.error.HTTPError as error:
        # A refusal or a redirection names the region as well.
        error.close()
        return error.headers
    except OSError:
        return None
