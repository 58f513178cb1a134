"""Why a wrong output is wrong: `explain` compares it with the results of known mistakes on the same input."""
