"""`python -m llmgw`: how processes of one installation start each other."""

from llmgw.cli.main import main

if __name__ == "__main__":
    main()
