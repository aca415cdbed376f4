"""The hosts of an elastic run: those that are wanted, those that are barred, and the changes from one to the other."""
