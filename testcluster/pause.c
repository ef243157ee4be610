/* The program of a pod's own container: it holds the pod's namespaces open until SIGTERM, and reaps. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(int number) {
    (void)number;
    _exit(0);
}

static void reap(int number) {
    (void)number;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void) {
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
