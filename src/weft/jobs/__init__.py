"""Jobs: runs that a service keeps, queues, places, watches and restarts, on machines that a team shares."""
