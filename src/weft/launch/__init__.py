"""A plan of who runs where, and the engines that carry it out."""
