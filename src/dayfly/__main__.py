"""`python -m dayfly` is the command line."""

from dayfly.cli.main import main

main()
