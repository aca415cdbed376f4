"""The web interface of the jobs service: requests, answers, access, routes, the live stream, and its process."""
