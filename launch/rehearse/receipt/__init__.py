"""The results of a rehearsal: as data, as text, as a page, and as files."""
