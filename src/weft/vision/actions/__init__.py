"""Actions in films: a network for short clips, its training from marked stretches, and answers for a film."""
