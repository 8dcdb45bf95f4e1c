"""tokenmill: which hardware, how much of it, laid out how, for every stage in the life of an AI model."""
