"""Verbs that look after a jobs service: who may use it, what it keeps."""
