/* Checks, before `env` starts, whether it can execute its program: its exit code does not show that nothing ran. */
#ifndef DAYFLY_ENV_PROGRAM_H
#define DAYFLY_ENV_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base.h"

/* The first line of a script as an argument vector, as the kernel makes it: at most interpreter, one argument, PATH. */
struct first_line {
    char text[4096];
    char *arguments[4];
};

/* Fills LINE from SCRIPT, to be executed as PATH. False if it is too long, or names no interpreter. */
bool first_line_read(struct first_line *line, const char *script, const char *path);

/* Whether ARGUMENTS, if their program is `env`, lead to a program that can be executed in this environment. True if
 * that is unknown. FIRST_LINE is set if they come from a script's first line. */
bool env_program_check(char *const *arguments, bool first_line, struct fault *fault);

#endif
