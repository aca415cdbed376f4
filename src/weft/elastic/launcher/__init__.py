"""The launcher of an elastic run: it starts agents, brings hosts in and out, and reports what happens."""
