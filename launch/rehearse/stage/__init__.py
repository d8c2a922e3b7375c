"""A rehearsal as it plays: the launcher in a process of its own, the faults that are injected, and what is shown."""
