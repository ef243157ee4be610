/* The two programs of an image of the first framework: `provision` and `deprovision`, by the name it is called by. It
 * needs neither a shell nor a library. The database is make-believe; what is read and written is not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOME "/signadot/plugin/"

static void take(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

static void leave(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

int main(int count, char **words) {
    char name[1024], host[4096], known[4096], port[64];
    const char *slash = strrchr(words[0], '/');
    if (count != 3) {
        fprintf(stderr, "usage: %s SANDBOX-ID RESOURCE-NAME\n", words[0]);
        return 2;
    }
    take(HOME "input/dbname", name, sizeof name);
    snprintf(host, sizeof host, "%s.%s.%s", name, words[2], words[1]);
    if (strcmp(slash != NULL ? slash + 1 : words[0], "provision") == 0) {
        leave(HOME "output/host", host);
        leave(HOME "output/port", "5432");
        printf("made %s\n", host);
        return 0;
    }
    take(HOME "output/host", known, sizeof known);
    take(HOME "output/port", port, sizeof port);
    printf("dropped %s at port %s\n", known, port);
    return strcmp(host, known) != 0;
}
