"""One worker's step, recorded layer by layer, and the links that were measured between hosts."""
