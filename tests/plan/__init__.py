"""Tests of the heart: worlds in, decisions out; the table; and storyboards that read as prose."""
