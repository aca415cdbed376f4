"""Planning: candidates among the ways, the choice of the best with its reason, and the plan file; without torch."""
