"""What a node has: host, cards, disks, engines. Nothing here runs what it looks for."""
