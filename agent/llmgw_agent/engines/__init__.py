"""The engines an agent can run, each one adapter behind one protocol."""
