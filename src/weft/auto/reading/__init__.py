"""Reading of tables as people have them: files of several kinds, and text that holds dates or numbers."""
