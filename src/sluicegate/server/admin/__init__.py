"""The control plane: an ordinary web application in a process of its own; it asks the supervisor to write."""
