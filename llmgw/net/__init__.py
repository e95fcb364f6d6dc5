"""HTTP as this project speaks it."""
