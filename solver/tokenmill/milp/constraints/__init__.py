"""The constraints, one function a family: each says what it demands, its symbols, its rows and what a dual means."""
