#include "hub.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char BLOBS[] = "../../blobs/";

/* Is the folder one of SOMETHING/snapshots, and is there a SOMETHING/blobs? */
static bool is_snapshot(int dir)
{
    struct stat above, snapshots, blobs;
    return fstatat(dir, "..", &above, 0) == 0 &&
           fstatat(dir, "../../snapshots", &snapshots, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(dir, "../../blobs", &blobs, AT_SYMLINK_NOFOLLOW) == 0 &&
           above.st_dev == snapshots.st_dev && above.st_ino == snapshots.st_ino &&
           S_ISDIR(blobs.st_mode);
}

bool cf_hub_blobs(const char *root, char *blobs, size_t size)
{
    const int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return false;
    const int n = snprintf(blobs, size, "%s/../../blobs", root);
    const bool is = is_snapshot(dir) && n > 0 && (size_t)n < size;
    close(dir);
    return is;
}

int cf_hub_follow(int dir, const char *path, char *name, size_t size)
{
    char target[512];
    if (!is_snapshot(dir)) return -1;
    const ssize_t n = readlinkat(dir, path, target, sizeof target - 1);
    if (n < 0) return -1;
    target[n] = '\0';
    const char *rest = target;
    for (const char *c = path; *c; c++) {
        if (*c != '/') continue;
        if (strncmp(rest, "../", 3) != 0) return -1;
        rest += 3;
    }
    if (strncmp(rest, BLOBS, sizeof BLOBS - 1) != 0) return -1;
    rest += sizeof BLOBS - 1;
    if (!*rest || strchr(rest, '/') || strcmp(rest, "..") == 0 || strlen(rest) >= size) return -1;
    strcpy(name, rest);
    return openat(dir, "../../blobs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}
