"""`python -m knockout`: the same as the command."""

from knockout.cli import main

if __name__ == "__main__":
    main()
