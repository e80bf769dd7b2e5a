#include "beside.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"

enum { MOST_ENTRIES = 100000 };

/* Of each folder that was opened: a checkpoint may lie in several. */
typedef struct beside {
    const char *root;
    DIR *parent;
    struct stat own;
    struct beside *next;
} beside;

static beside *all;

static const beside *beside_of(const char *root)
{
    const beside *b = all;
    while (b && strcmp(b->root, root) != 0) b = b->next;
    return b;
}

void cf_beside_open(const char *root)
{
    if (beside_of(root)) return;
    const int folder = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    const int parent = openat(folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    beside *b = calloc(1, sizeof *b);
    if (b && parent >= 0 && fstat(folder, &b->own) == 0) b->parent = fdopendir(parent);
    if (b && b->parent) {
        b->root = root;
        b->next = all;
        all = b;
    } else {
        if (parent >= 0) close(parent);
        free(b);
    }
    close(folder);
}

typedef struct neighbour {
    char name[NAME_MAX + 1];
    bool like, numbered; /* its name: as ours but for digits; has a number */
    uint64_t number;     /* the last one in it */
    int64_t time;
} neighbour;

/* The last number in a name; false: there is none, or it has more than 63 bits. */
static bool last_number(const char *name, uint64_t *number)
{
    size_t end = strlen(name);
    while (end && !isdigit((unsigned char)name[end - 1])) end--;
    size_t begin = end;
    while (begin && isdigit((unsigned char)name[begin - 1])) begin--;
    *number = 0;
    for (size_t i = begin; i < end; i++) {
        if (*number > (INT64_MAX - 9) / 10) return false;
        *number = *number * 10 + (uint64_t)(name[i] - '0');
    }
    return end > begin;
}

/* Do two names differ in numbers alone? */
static bool alike(const char *a, const char *b)
{
    while (*a && *b) {
        const bool digits = isdigit((unsigned char)*a);
        if (digits != (bool)isdigit((unsigned char)*b) || (!digits && *a != *b)) return false;
        if (!digits) {
            a++;
            b++;
            continue;
        }
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
    }
    return *a == *b;
}

static bool newer(const neighbour *a, const neighbour *b)
{
    if (a->like != b->like) return a->like;
    if (a->numbered != b->numbered) return a->numbered;
    if (a->numbered && a->number != b->number) return a->number > b->number;
    return a->time != b->time ? a->time > b->time : strcmp(a->name, b->name) > 0;
}

/* Has the folder all marks below `within`? */
static bool whole(const beside *b, neighbour *n, const char *within, const char *const *marks,
                  size_t n_marks)
{
    for (size_t i = 0; i < n_marks; i++) {
        char path[PATH_MAX];
        struct stat st;
        const bool absent = *marks[i] == '!';
        const int length =
            snprintf(path, sizeof path, "%s/%s%s", n->name, within, marks[i] + absent);
        if (length < 0 || (size_t)length >= sizeof path) return false;
        const bool there = fstatat(dirfd(b->parent), path, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (absent ? there : !there || !S_ISREG(st.st_mode) || !st.st_size) return false;
        if (i == 0) n->time = (int64_t)st.st_mtim.tv_sec;
    }
    return n_marks > 0;
}

/* Is it one of the folders that the checkpoint lies in? */
static bool is_ours(const struct stat *st)
{
    const beside *b = all;
    while (b && (st->st_dev != b->own.st_dev || st->st_ino != b->own.st_ino)) b = b->next;
    return b != NULL;
}

/* The next entry that is a folder; *ours: of the checkpoint itself; *own: the root's. */
static bool next_folder(const beside *b, char name[NAME_MAX + 1], bool *ours, bool *own, int *left)
{
    const char *entry;
    struct stat st;
    while ((*left)-- > 0 && (entry = cf_folder_next(b->parent))) {
        if (fstatat(dirfd(b->parent), entry, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (!S_ISDIR(st.st_mode)) continue;
        *ours = is_ours(&st);
        *own = st.st_dev == b->own.st_dev && st.st_ino == b->own.st_ino;
        snprintf(name, NAME_MAX + 1, "%s", entry);
        return true;
    }
    return false;
}

bool cf_beside_newest(const char *root, const char *const *within, size_t n_within,
                      const char *const *marks, size_t n_marks, char *name, size_t size)
{
    char own[NAME_MAX + 1] = "";
    neighbour best = {0}, n = {0};
    bool found = false, ours = false, self = false;
    const beside *b = beside_of(root);
    if (!b) return false;
    for (int pass = 0; pass < 2; pass++) {
        int left = MOST_ENTRIES;
        rewinddir(b->parent);
        while (next_folder(b, n.name, &ours, &self, &left)) {
            if (pass == 0 && self) memcpy(own, n.name, sizeof own);
            if (pass == 0 || ours) continue;
            bool is_whole = false;
            for (size_t i = 0; i < n_within && !is_whole; i++)
                is_whole = whole(b, &n, within[i], marks, n_marks);
            if (!is_whole) continue;
            n.like = alike(n.name, own);
            n.numbered = last_number(n.name, &n.number);
            if (!found || newer(&n, &best)) best = n;
            found = true;
        }
    }
    if (found) snprintf(name, size, "%s", best.name);
    return found;
}
