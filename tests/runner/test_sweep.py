"""The sweep finds remaining processes of a step from the kernel's answers to the first process of its namespace."""

import subprocess

import pytest

BENCH = """
#include "sweep.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments) {
    /* The signal by which its parent hears of its end: none for what `clone` begins without a word of it. */
    int word = count > 1 ? atoi(arguments[1]) : SIGCHLD;
    printf("%d", sweep_finds_none());
    pid_t child = (pid_t)syscall(SYS_clone, (unsigned long)word, NULL, NULL, NULL, NULL);
    if (child == 0) for (;;) pause();
    printf("%d", sweep_finds_none());
    fflush(stdout);
    siginfo_t ended;
    kill(child, SIGKILL);
    waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT | __WALL);
    printf("%d", sweep_finds_none());
    return waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | __WALL) == 0;
}
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A program that prints whether nothing is left: before a child exists, while it lives, and after its end."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "bench.c").write_text(BENCH)
    root = __file__.rpartition("/tests/")[0] + "/runner"
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{root}", "-o", str(folder / "bench"), str(folder / "bench.c")]
    subprocess.run([*command, f"{root}/sweep.c"], check=True)
    return lambda word: subprocess.run([str(folder / "bench"), str(word)], check=True, stdout=subprocess.PIPE).stdout


@pytest.mark.parametrize("word", [17, 0], ids=["as fork does", "as clone may"])
def test_running_child_is_left_and_ended_child_is_reaped(bench, word):
    assert bench(word) == b"101"
