"""Whether a test falls when the product is changed for the worse. Two lists are played:

    python -m mutation guards               each guard of `guards.py` taken out, and the one test that must notice
    python -m mutation mutants plan execute  each change that `mutants.py` makes by rule, and the tests of `watch.py`

A mutant that no test notices becomes a test, or stands in `equivalent.py` with the reason why nothing could notice it.
`make test` plays a share of the guards and holds both lists to the code; `make proof` plays all. What was noticed is
remembered (`played.py`) as long as the file is the same, so a run that was broken off goes on where it was.
"""
