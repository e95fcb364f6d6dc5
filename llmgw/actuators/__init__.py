"""How what is decided reaches the nodes and the mirror."""
