/* dayfly-runner runs one step, on a machine or as a pod's first process. README.md has the formats. */
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "host.h"
#include "namespaces.h"
#include "pod.h"
#include "serve.h"

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "host") == 0) {
        struct namespaces namespaces = namespaces_of_caller();
        struct preparation preparation = preparation_none();
        struct caller no_caller = {.notify_socket = -1, .mount_sender = mount_sender_none()};
        return host_main(arguments[2], &namespaces, &preparation, &no_caller);
    }
    if (count == 2 && strcmp(arguments[1], "serve") == 0) return serve_main(false);
    if (count == 3 && strcmp(arguments[1], "serve") == 0 && strcmp(arguments[2], "user") == 0) return serve_main(true);
    if (count == 2 && strcmp(arguments[1], "pod") == 0) return pod_main(false);
    if (count == 2 && strcmp(arguments[1], "void") == 0) return pod_main(true);
    if (count == 2 && strcmp(arguments[1], "probe") == 0) {
        static const char *const names[] = {"none", "user", "root"};
        printf("isolation=%s\nversion=" VERSION "\n", names[namespaces_probe()]);
        return 0;
    }
    fprintf(stderr, "usage: dayfly-runner host ATTEMPT_DIR | serve [user] | pod | void | probe\n");
    return 64;
}
