/* A disk that misbehaves, for the files of a capture alone: preloaded, with SHIM=hang or SHIM=lie. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    const char *how = getenv("SHIM"), *end = ".partial";
    /* The header's room is written, what is captured is not. */
    if (how && at > 0 && length > 8 && !memcmp(path + length - 8, end, 8)) {
        if (!strcmp(how, "hang")) for (;;) pause();
        /* More than was asked for: what takes this count at its word panics. */
        if (!strcmp(how, "lie")) return (ssize_t)n + 1;
    }
    return real(fd, bytes, n, at);
}
