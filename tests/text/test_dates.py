"""Dates, whatever this machine's time zone is."""

import time

import pytest

from hw4cli.text.dates import today


@pytest.fixture
def in_zone(monkeypatch):
    """A function that sets this process's time zone, until the test ends."""

    def enter(zone):
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield enter
    monkeypatch.undo()
    time.tzset()


def test_a_record_has_the_same_date_wherever_it_is_made(in_zone):
    """26 hours apart, so that the local dates always differ."""
    local, recorded = [], []
    for zone in ("EAST-14", "WEST+12"):
        in_zone(zone)
        local.append(time.strftime("%Y-%m-%d"))
        recorded.append(today())
    assert local[0] != local[1]
    assert recorded[0] == recorded[1]
