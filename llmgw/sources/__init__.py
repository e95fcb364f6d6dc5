"""Where what is wanted, and what is, comes from."""
