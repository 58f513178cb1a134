"""The assignment's problem: shapes, case files, the suite, the float64 oracle, the comparison."""
