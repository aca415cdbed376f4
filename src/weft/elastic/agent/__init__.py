"""The agent of one host: it starts and watches the host's workers, and agrees with the other agents on the view."""
