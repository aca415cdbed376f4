"""The scheduler: a pure decision from the state of hosts and jobs to actions, and a simulation to judge it by."""
