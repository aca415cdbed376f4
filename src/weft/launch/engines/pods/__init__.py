"""The engine `pods`: a run carried out by pods that know each other's names, the first of which is the launcher."""
