"""What the context of a run is made of: a file for each face of `palaestra.context`."""
