#include "processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES_SHOWN = 5 };

struct process {
    pid_t pid, parent;
    char state;
    char name[16];
};

struct table {
    struct process *rows;
    size_t count, capacity;
};

static int by_pid(const void *left, const void *right) {
    pid_t a = ((const struct process *)left)->pid, b = ((const struct process *)right)->pid;
    return (a > b) - (a < b);
}

static bool read_process(pid_t pid, struct process *process) {
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return false;
    text[length] = '\0';
    /* The command's name is in parentheses and may contain any character. */
    char *behind = strrchr(text, ')');
    int parent;
    if (behind == NULL || sscanf(behind, ") %c %d", &process->state, &parent) != 2) return false;
    process->pid = pid;
    process->parent = (pid_t)parent;
    const char *name = strchr(text, '(');
    size_t size = name == NULL || name >= behind ? 0 : (size_t)(behind - name - 1);
    if (size >= sizeof process->name) size = sizeof process->name - 1;
    for (size_t i = 0; i < size; i++) process->name[i] = isprint((unsigned char)name[1 + i]) ? name[1 + i] : '?';
    process->name[size] = '\0';
    return true;
}

static void list_processes(struct table *table) {
    DIR *proc = opendir("/proc");
    table->count = 0;
    if (proc == NULL) return;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        if (table->count == table->capacity) {
            size_t wanted = table->capacity == 0 ? 512 : table->capacity * 2;
            struct process *grown = realloc(table->rows, wanted * sizeof *grown);
            if (grown == NULL) break;
            table->rows = grown;
            table->capacity = wanted;
        }
        if (read_process((pid_t)atoi(entry->d_name), &table->rows[table->count])) table->count++;
    }
    closedir(proc);
    if (table->count > 0) qsort(table->rows, table->count, sizeof *table->rows, by_pid);
}

static bool is_descendant(const struct table *table, const struct process *process) {
    pid_t self = getpid(), parent = process->parent;
    for (size_t steps = 0; steps < table->count && parent > 1; steps++) {
        if (parent == self) return true;
        struct process key = {.pid = parent};
        const struct process *row = bsearch(&key, table->rows, table->count, sizeof key, by_pid);
        if (row == NULL) return false;
        parent = row->parent;
    }
    return parent == self;
}

/* Sends SIGNAL to each living descendant and returns how many were not yet stopped. */
static size_t signal_all(struct table *table, int signal) {
    size_t moving = 0;
    list_processes(table);
    for (size_t i = 0; i < table->count; i++) {
        const struct process *process = &table->rows[i];
        if (process->state == 'Z' || process->state == 'X' || !is_descendant(table, process)) continue;
        if (process->state != 'T') moving++;
        kill(process->pid, signal);
    }
    return moving;
}

bool processes_all_ended(void) {
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) > 0) {}
    return pid < 0 && errno == ECHILD;
}

void processes_describe(struct fault *description) {
    char self[16] = "";
    description->text[0] = '\0';
    if (processes_all_ended()) return;
    /* If this namespace has no /proc of its own, process ids there differ. */
    if (readlink("/proc/self", self, sizeof self - 1) < 0 || atoi(self) != (int)getpid()) {
        snprintf(description->text, sizeof description->text, "their names are unknown here");
        return;
    }
    struct table table = {0};
    size_t count = 0, used = 0;
    list_processes(&table);
    for (size_t i = 0; i < table.count; i++) {
        const struct process *process = &table.rows[i];
        if (process->state == 'Z' || process->state == 'X' || !is_descendant(&table, process)) continue;
        if (++count > NAMES_SHOWN) continue;
        used += (size_t)snprintf(description->text + used, sizeof description->text - used, "%s%s (%d)",
                                 count > 1 ? ", " : "", process->name, (int)process->pid);
    }
    if (count > NAMES_SHOWN) {
        snprintf(description->text + used, sizeof description->text - used, " and %zu more", count - NAMES_SHOWN);
    }
    free(table.rows);
}

void processes_kill_namespace(void) {
    for (useconds_t pause = 200;;) {
        kill(-1, SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
        if (kill(-1, 0) < 0 && errno == ESRCH) return;
        usleep(pause);
        if (pause < 100000) pause *= 2;
    }
}

void processes_signal(int signal) {
    struct table table = {0};
    signal_all(&table, signal);
    free(table.rows);
}

/* True when no child is left to wait for. */
static bool reap(void) {
    for (;;) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno == ECHILD) return true;
        if (pid <= 0) return false;
    }
}

void processes_kill_descendants(void) {
    struct table table = {0};
    useconds_t pause = 500;
    while (!reap()) {
        /* Stopped processes do not fork, and they still count towards a process limit. So a fork bomb is blocked, while
         * killing one by one would only free slots for new processes. */
        for (int round = 0; round < 50 && signal_all(&table, SIGSTOP) > 0; round++) {}
        signal_all(&table, SIGKILL);
        usleep(pause);
        if (pause < 100000) pause *= 2;
    }
    free(table.rows);
}
