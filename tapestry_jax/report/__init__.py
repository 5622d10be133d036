"""Tables that explain a plan."""
