"""Process 1: the reconciler, and the API that agents and gateways call."""
