"""Tests of the decision core: decisions for worlds, the table of moves, and storyboards."""
