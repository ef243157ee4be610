"""Whether a test falls when the product is changed for the worse. Two lists are played:

    python -m mutation guards                     each guard of `guards*.py` taken out, and the one test that must notice
    python -m mutation mutants --sample 100 plan   changes that `mutants.py` makes by rule, and all tests that come there

One process has all tests collected and forks itself for each mutant (`player.py`), which is put in place of the code of
one function (`inplace.py`); which tests come to which lines is learnt once and kept (`reach.py`). A mutant that no test
notices becomes a test, or stands in `equivalent.py` with the reason why nothing could notice it. `make test` plays a
share of the guards and holds both lists to the code; `make proof` plays all guards, and a sample of the mutants that
the commit draws. What was noticed is remembered (`played.py`) as long as the function is the same, so a run that was
broken off goes on where it was.
"""
