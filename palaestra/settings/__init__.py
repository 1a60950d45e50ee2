"""The settings of a run: declared once, and read from flags, files and keywords."""
