"""What judged runs are worth: the journal, rules, standings, results, the scoreboard."""
