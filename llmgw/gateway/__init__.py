"""Process 3: one OpenAI-compatible endpoint for every model of the fleet."""
