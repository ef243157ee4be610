/* dayfly-runner: runs one step on a machine or as a pod's first process. README.md has the formats. */
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "host.h"
#include "pod.h"
#include "serve.h"
#include "spaces.h"

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "host") == 0) {
        struct inside inside = spaces_outside();
        return host_main(arguments[2], &inside, -1);
    }
    if (count == 2 && strcmp(arguments[1], "serve") == 0) return serve_main();
    if (count == 2 && strcmp(arguments[1], "pod") == 0) return pod_main(false);
    if (count == 2 && strcmp(arguments[1], "void") == 0) return pod_main(true);
    if (count == 2 && strcmp(arguments[1], "probe") == 0) {
        static const char *const names[] = {"none", "user", "root"};
        printf("isolation=%s\nversion=" VERSION "\n", names[spaces_probe()]);
        return 0;
    }
    fprintf(stderr, "usage: dayfly-runner host ATTEMPT_DIR | serve | pod | void | probe\n");
    return 64;
}
