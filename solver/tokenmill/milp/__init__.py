"""The programme that picks columns, counts of systems and flows."""
