"""`make acceptance`: the toolkit's promises on a real account.  README.md says how."""
