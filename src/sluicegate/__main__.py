"""`python -m sluicegate` is `sluicegate`."""

from sluicegate.cli import main

if __name__ == "__main__":
    main()
