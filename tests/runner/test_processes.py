"""Remaining processes of a step are detected by the first process of its namespace."""

import subprocess

import pytest

BENCH = """
#include "processes.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments) {
    /* The signal that reports the end of the child to its parent; 0: none. */
    int word = count > 1 ? atoi(arguments[1]) : SIGCHLD;
    printf("%d", processes_all_ended());
    pid_t child = (pid_t)syscall(SYS_clone, (unsigned long)word, NULL, NULL, NULL, NULL);
    if (child == 0) for (;;) pause();
    printf("%d", processes_all_ended());
    fflush(stdout);
    siginfo_t ended;
    kill(child, SIGKILL);
    waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT | __WALL);
    printf("%d", processes_all_ended());
    return waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | __WALL) == 0;
}
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A program that prints whether nothing is left: before a child exists, while it lives, and after its end."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "bench.c").write_text(BENCH)
    root = __file__.rpartition("/tests/")[0] + "/runner"
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{root}", "-o", str(folder / "bench"), str(folder / "bench.c")]
    subprocess.run([*command, f"{root}/processes.c"], check=True)
    return lambda word: subprocess.run([str(folder / "bench"), str(word)], check=True, stdout=subprocess.PIPE).stdout


@pytest.mark.parametrize("word", [17, 0], ids=["as fork does", "as clone may"])
def test_running_child_is_left_and_ended_child_is_reaped(bench, word):
    assert bench(word) == b"101"
