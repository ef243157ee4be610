#include "env_program.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_WORDS 64
#define MAX_SCRIPT_DEPTH 4 /* how many scripts in a row may have a script as interpreter; the kernel's limit */
#define HEAD_BYTES 4096 /* bytes read from the start of a program */

extern char **environ;

/* The folders that `env` searches without a PATH: the defaults of the C libraries, and some more. */
static const char default_path[] = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:.";

/* The arguments of `env` that have been read. */
struct env_args {
    char text[HEAD_BYTES];  /* the words of -S */
    size_t used;      /* of TEXT */
    const char *path; /* search path of programs */
    const char *program;
};

bool first_line_read(struct first_line *line, const char *script, const char *path) {
    size_t length = strcspn(script, "\n");
    if (strncmp(script, "#!", 2) != 0 || length >= sizeof line->text) return false;
    memcpy(line->text, script, length);
    while (length > 2 && strchr(" \t", line->text[length - 1]) != NULL) length--;
    line->text[length] = '\0';
    char *interpreter = line->text + 2 + strspn(line->text + 2, " \t");
    char *rest = interpreter + strcspn(interpreter, " \t");
    if (*rest != '\0') *rest++ = '\0';
    rest += strspn(rest, " \t");
    size_t count = 0;
    line->arguments[count++] = interpreter;
    if (*rest != '\0') line->arguments[count++] = rest;
    line->arguments[count++] = (char *)path;
    line->arguments[count] = NULL;
    return *interpreter != '\0';
}

static bool is_program(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* The loader of an ELF file for 64 bits; NULL if it has none, or if the loader's name is beyond its first 4096 bytes. */
static const char *loader(const char *head, size_t length) {
    Elf64_Ehdr header;
    if (length < sizeof header || memcmp(head, ELFMAG, SELFMAG) != 0 || head[EI_CLASS] != ELFCLASS64) return NULL;
    memcpy(&header, head, sizeof header);
    for (size_t index = 0; index < header.e_phnum; index++) {
        Elf64_Phdr part;
        size_t start = header.e_phoff + index * header.e_phentsize;
        if (start > length || length - start < sizeof part) return NULL;
        memcpy(&part, head + start, sizeof part);
        if (part.p_type != PT_INTERP) continue;
        bool inside = part.p_offset < length && part.p_filesz > 0 && part.p_filesz <= length - part.p_offset;
        return inside && head[part.p_offset + part.p_filesz - 1] == '\0' ? head + part.p_offset : NULL;
    }
    return NULL;
}

/* Whether the kernel finds the interpreter or loader of a program. True if that is unknown. */
static bool has_interpreter(const char *path) {
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s", path);
    for (int depth = 0; depth <= MAX_SCRIPT_DEPTH; depth++) {
        char head[HEAD_BYTES + 1];
        struct first_line line;
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd < 0 ? -1 : read(fd, head, HEAD_BYTES);
        if (fd >= 0) close(fd);
        if (got < 0) return true;
        head[got] = '\0';
        const char *loaded = loader(head, (size_t)got);
        if (loaded != NULL) return access(loaded, F_OK) == 0;
        if (!first_line_read(&line, head, name)) return true;
        if (!is_program(line.arguments[0])) return false;
        snprintf(name, sizeof name, "%s", line.arguments[0]);
    }
    return true;
}

/* Whether the folders of PATH contain an executable NAME. */
static bool is_in_path(const char *name, const char *path) {
    char candidate[PATH_MAX];
    if (strchr(name, '/') != NULL) return is_program(name) && has_interpreter(name);
    for (const char *rest = path;; rest++) {
        size_t length = strcspn(rest, ":");
        int needed = snprintf(candidate, sizeof candidate, "%.*s/%s", length > 0 ? (int)length : 1,
                              length > 0 ? rest : ".", name);
        if (needed > 0 && (size_t)needed < sizeof candidate && is_program(candidate) && has_interpreter(candidate)) {
            return true;
        }
        rest += length;
        if (*rest == '\0') return false;
    }
}

/* Splits the text of -S into WORDS, at most ROOM of them. False if `env` might split it differently. */
static bool split(struct env_args *env_args, const char *text, const char **words, size_t limit, size_t *count) {
    for (;;) {
        text += strspn(text, " \t");
        if (*text == '\0') return true;
        if (*text == '#' || *count == limit) return false;
        words[(*count)++] = env_args->text + env_args->used;
        for (char quote = '\0'; *text != '\0' && (quote != '\0' || strchr(" \t", *text) == NULL); text++) {
            if (*text == '\\' || *text == '$' || env_args->used >= sizeof env_args->text - 1) return false;
            if (quote == '\0' && (*text == '"' || *text == '\'')) quote = *text;
            else if (*text == quote) quote = '\0';
            else env_args->text[env_args->used++] = *text;
            if (text[1] == '\0' && quote != '\0') return false;
        }
        if (env_args->used >= sizeof env_args->text) return false;
        env_args->text[env_args->used++] = '\0';
    }
}

/* The text of an option that makes `env` split it; NULL for other options. NEXT is the argument after the option. */
static const char *text_to_split(const char *word, const char *next, size_t *taken) {
    static const char name[] = "--split-string=";
    *taken = 1;
    if (strncmp(word, name, sizeof name - 1) == 0) return word + sizeof name - 1;
    word++;
    word += strspn(word, "iv");
    if (*word++ != 'S') return NULL;
    if (*word != '\0') return word;
    *taken = 2;
    return next;
}

/* Reads WORDS as `env` does, up to the program. False if an option is unknown. */
static bool read_words(struct env_args *env_args, const char *const *words, size_t count) {
    bool options = true;
    for (size_t index = 0; index < count; index++) {
        const char *word = words[index], *next = index + 1 < count ? words[index + 1] : NULL;
        const char *more[MAX_WORDS];
        size_t taken = 0, found = 0;
        if (options && *word == '-') {
            const char *text = text_to_split(word, next, &taken);
            if (text != NULL) {
                if (strncmp(word, "--", 2) != 0 && memchr(word, 'i', strcspn(word, "S")) != NULL) env_args->path = default_path;
                if (!split(env_args, text, more, MAX_WORDS, &found)) return false;
                for (size_t at = index + taken; at < count && found < MAX_WORDS; at++) more[found++] = words[at];
                return found < MAX_WORDS && read_words(env_args, more, found);
            }
            if (strcmp(word, "-") == 0 || strcmp(word, "-i") == 0 || strcmp(word, "--ignore-environment") == 0) {
                env_args->path = default_path;
            } else if (strcmp(word, "-u") == 0 && next != NULL) {
                if (strcmp(next, "PATH") == 0) env_args->path = default_path;
                index++;
            } else if (strncmp(word, "--unset=", 8) == 0) {
                if (strcmp(word + 8, "PATH") == 0) env_args->path = default_path;
            } else if (strcmp(word, "--") == 0) {
                options = false;
            } else if (strcmp(word, "-v") != 0 && strcmp(word, "--debug") != 0) {
                return false;
            }
            if (strcmp(word, "-") == 0) options = false;
            continue;
        }
        options = false;
        if (strchr(word, '=') == NULL) {
            env_args->program = word;
            return true;
        }
        if (strncmp(word, "PATH=", 5) == 0) env_args->path = word + 5;
    }
    return true;
}

static bool is_env(const char *program) {
    const char *slash = strrchr(program, '/');
    return strcmp(slash != NULL ? slash + 1 : program, "env") == 0 && (slash == NULL || is_program(program));
}

bool env_program_check(char *const *arguments, bool first_line, struct fault *fault) {
    struct env_args env_args = {.path = getenv("PATH")};
    size_t count = 0;
    if (!is_env(arguments[0])) return true;
    if (env_args.path == NULL) env_args.path = default_path;
    while (arguments[count + 1] != NULL) count++;
    if (!read_words(&env_args, (const char *const *)arguments + 1, count) || env_args.program == NULL) return true;
    if (first_line && env_args.program == arguments[count]) {
        fail(fault, "The script's first line names no program behind env: it would start the script without end.");
        return false;
    }
    if (is_in_path(env_args.program, env_args.path)) return true;
    size_t length = strlen(env_args.program);
    const char *whose = first_line ? "script's interpreter" : "program";
    if (first_line && length > 0 && env_args.program[length - 1] == '\r') {
        fail(fault, "The script's first line, #!... %.*s, ends in a carriage return: save it with Unix line ends.",
             (int)length - 1, env_args.program);
    } else if ((strchr(env_args.program, '/') != NULL && is_program(env_args.program))) {
        fail(fault, "The %s %.200s, which env starts, cannot be executed: it exists, but the loader or interpreter that it "
             "names does not.", whose, env_args.program);
    } else {
        fail(fault, "The %s %.200s, for which env searches in PATH, does not exist here.", whose, env_args.program);
    }
    return false;
}
