"""Advice: rules that look at a job's curves and resources, and say what is wrong and what may help."""
