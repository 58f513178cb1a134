"""What the tests of pages share."""

from labpage import address, lab  # noqa: F401 (fixtures)
