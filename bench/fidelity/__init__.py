"""How true the estimates come: every row that was measured, beside what is worked out for it."""
