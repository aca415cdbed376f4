"""Families of models: their spaces, and how a model of each is fitted and asked."""
