"""The examples, lived through by the real command line: made, used, broken at each step, and gone without a trace.

`home` runs Dayfly, `outside` and `servers` the databases and stores that examples need, `kinds` and `gallery` say what
each example is and how to see what it left, `pages` reads the commands out of READMEs and docs. Called by pytest alone; knows no module of Dayfly
but those that read a plugin file.
"""
