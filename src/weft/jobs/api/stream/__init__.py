"""The live stream: one hub reads new events once, and hands the same bytes to everybody who watches."""
