/* dayfly-runner runs one step, on a machine or as a pod's first process. README.md has the formats. */
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
        struct ahead ahead = ahead_nothing();
        struct caller nobody = {.notify_socket = -1, .room_sender = room_sender_none()};
        return host_main(arguments[2], &inside, &ahead, &nobody);
    }
    if (count == 2 && strcmp(arguments[1], "serve") == 0) return serve_main(false);
    if (count == 3 && strcmp(arguments[1], "serve") == 0 && strcmp(arguments[2], "user") == 0) return serve_main(true);
    if (count == 2 && strcmp(arguments[1], "pod") == 0) return pod_main(false);
    if (count == 2 && strcmp(arguments[1], "void") == 0) return pod_main(true);
    if (count == 2 && strcmp(arguments[1], "probe") == 0) {
        static const char *const names[] = {"none", "user", "root"};
        printf("isolation=%s\nversion=" VERSION "\n", names[spaces_probe()]);
        return 0;
    }
    fprintf(stderr, "usage: dayfly-runner host ATTEMPT_DIR | serve [user] | pod | void | probe\n");
    return 64;
}
