"""Tables larger than memory: files read in bounded chunks, kept in a form that is mapped instead of read."""
