"""A running rehearsal: the launcher in a process of its own, the injected faults, and the display."""
