"""When what runs (schedule) and where it lives (memory)."""
