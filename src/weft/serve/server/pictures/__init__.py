"""Pictures in, labels or boxes out: decoding, guarded fetching, and the routes for them."""
