"""The examples, played with the real command line: created, used, failed at each step, and removed completely.

`home` runs Dayfly. `outside` and `servers` run the databases and stores that examples need. `kinds` and `gallery`
define each example and how to find its leftovers. `pages` reads the commands of READMEs and docs. Only pytest calls
this package, and it uses only the modules of Dayfly that read a plugin file.
"""
