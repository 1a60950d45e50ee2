"""What prints progress to a person: bars, lines, and streams that may close."""
