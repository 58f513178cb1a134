"""Scores of judged runs: the journal, rules, standings, results, the scoreboard."""
