"""HTTP connections of the server: bounded heads, deadlines, and an end that loses no request."""
