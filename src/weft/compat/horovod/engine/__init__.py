"""The engine of one process: two threads, one that negotiates and one that carries out what was agreed on."""
