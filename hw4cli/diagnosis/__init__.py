"""Why a wrong output is wrong: `explain` compares it with what known mistakes make of the same input."""
