"""Back ends that run trials: functions, scripts as processes, and a simulation on tabulated curves."""
