"""Models of tables as jobs: `weft.auto` begun from a page or by the API, watched while it runs, and served."""
