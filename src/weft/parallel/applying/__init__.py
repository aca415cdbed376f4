"""A plan carried out by torch's own DDP and FSDP2, and what was measured beside what was predicted."""
