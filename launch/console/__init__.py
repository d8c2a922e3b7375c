"""Every job on one local page: server.py serves it, pages.py has its addresses, and the rest is what they show."""
