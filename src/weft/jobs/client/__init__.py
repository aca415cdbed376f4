"""The client of the jobs service: for programs (`weft.jobs.Client`) and for the commands."""
