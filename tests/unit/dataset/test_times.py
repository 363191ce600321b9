"""Goal: times are read in the forms that callers have them in."""

from datetime import datetime, timedelta

import pandas as pd
import pytest

from lancelet.util import sanitize_ts, td_to_micros

NOON = datetime(2026, 1, 31, 12)  # noqa: DTZ001 - what callers write has no zone


@pytest.mark.parametrize(
    "form", ["2026-01-31 12:00:00", "2026-01-31T12:00", NOON, pd.Timestamp(NOON)]
)
def test_every_form_of_a_time_is_the_same_time(form) -> None:
    assert sanitize_ts(form) == NOON
    assert type(sanitize_ts(form)) is datetime


def test_non_time_input_is_rejected() -> None:
    with pytest.raises(ValueError, match="Failed to parse"):
        sanitize_ts("noon")
    with pytest.raises(TypeError):
        sanitize_ts(12)


def test_durations_are_counted_in_microseconds() -> None:
    assert td_to_micros(timedelta(days=1, microseconds=3)) == 86_400_000_003
