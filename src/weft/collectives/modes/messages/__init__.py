"""Mode `mpi`: messages by MPI."""
