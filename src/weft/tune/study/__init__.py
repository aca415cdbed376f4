"""The study itself: its file, its trials, the events that make its state, and the journal that keeps them."""
