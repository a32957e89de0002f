"""How one request is served, stage by stage; `request` is where to begin."""
