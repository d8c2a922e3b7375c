"""What a rehearsal leaves: the facts, as text, as a page, and as files."""
