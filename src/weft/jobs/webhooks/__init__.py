"""Webhooks: events of jobs sent to web addresses, signed, tried again for a while, and each recorded."""
