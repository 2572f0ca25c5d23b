"""A stub: nothing here is called."""
