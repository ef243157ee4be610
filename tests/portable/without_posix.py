"""Run `dayfly ARGUMENTS`, or a Python file, in an interpreter that lacks what only POSIX systems have, as on Windows."""

from __future__ import annotations

import importlib.abc
import os
import runpy
import select
import signal
import sys
import sysconfig

MODULES = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "readline", "curses"}
OF_OS = """fork forkpty register_at_fork getuid geteuid getgid getegid getgroups getpgid getpgrp getsid setsid setpgid killpg
 pread pwrite uname chown fchown lchown fchmod statvfs fstatvfs sched_getaffinity memfd_create pidfd_open mkfifo mknod waitid
 posix_spawn getloadavg sync O_CLOEXEC O_NONBLOCK O_NOCTTY O_DIRECTORY O_NOFOLLOW O_SYNC O_DSYNC"""
OF_SIGNAL = """SIGHUP SIGQUIT SIGTSTP SIGCHLD SIGKILL SIGUSR1 SIGUSR2 SIGALRM SIGCONT SIGPIPE SIGWINCH pthread_sigmask sigtimedwait
 sigwaitinfo pidfd_send_signal setitimer alarm pause"""


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> None:
    sysconfig.get_config_vars()
    import asyncio  # noqa: F401 - the standard library may use what this interpreter has
    import subprocess  # noqa: F401

    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent())
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL), (select, "poll")):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "other"
    file, *arguments = sys.argv[1:]
    if file == "dayfly":
        sys.argv = ["dayfly", *arguments]
        from dayfly.cli.main import main as run

        run()
    sys.argv = [file, *arguments]
    runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    main()
