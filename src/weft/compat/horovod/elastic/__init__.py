"""`hvd.elastic`: states, samplers and the loop that goes on when members of the run come and go."""
