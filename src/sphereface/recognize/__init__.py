"""Photos in, names out: what the command line and the service share."""
