"""What the tests of leaderboards share."""

from leaderboards import crowded, leaderboard_page  # noqa: F401 (fixtures)
