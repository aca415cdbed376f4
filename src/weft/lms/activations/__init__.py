"""Activations under a budget: autograd's hooks record a step, then carry out the plan for it."""
