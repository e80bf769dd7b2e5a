/* An opened checkpoint: its listing, and the trees of its files, parsed when first asked for.
 *
 * Thread-safe. A tree is pinned while somebody reads it and freed when the last pin goes, unless
 * there is room to keep it (a budget shared by all): a file that several reads look into is parsed
 * once in practice. Storages outlive their tree. A tree's `generation` changes when it is freed, so
 * that a handle that outlived it can be told.
 */
#ifndef CF_SOURCE_H
#define CF_SOURCE_H

#include <pthread.h>

#include "dir.h"
#include "faults.h"
#include "node.h"

typedef struct cf_tree {
    uint32_t file;
    uint32_t generation; /* odd: parsed and alive */
    int pins;
    bool failed;
    cf_err err; /* why, if failed */
    cf_node *root;
    cf_node *meta; /* a dict: safetensors' __metadata__, else empty */
    cf_arena arena, keep;
    pthread_mutex_t lock; /* of parsing */
    uint64_t stamp;       /* when last unpinned */
} cf_tree;

typedef struct cf_source {
    cf_arena arena;
    cf_dir dir;
    cf_tree *trees; /* one a file of the listing */
    bool inert;
    bool salvage; /* a file that ends early is read as far as it is whole; with faults */
    pthread_mutex_t lock;
    uint64_t clock, kept;   /* bytes in trees without a pin */
    cf_text notes;          /* warnings, one a line */
    struct cf_source *next; /* whose files are numbered behind this one's: join.h */
    uint32_t first_root;    /* the command line's number of its root 0 */
    cf_faults *faults;      /* NULL: the first one ends the work; set by who opened it, borrowed */
} cf_source;

/* May tensors of `size` bytes in all come out of these files? E_LIMIT for 256 MiB and more than
 * 1000 times the files: some hundred bytes say that one element is a tensor of terabytes. */
bool cf_source_bears(const cf_source *source, uint64_t size, cf_err *err);

/* paths are borrowed for as long as the source. */
bool cf_source_open(cf_source *source, const char *const *paths, int count, bool inert,
                    cf_err *err);
void cf_source_close(cf_source *source);

/* The tree of a file, pinned. Errors name the file. */
bool cf_source_pin(cf_source *source, uint32_t file, cf_tree **tree, cf_err *err);
void cf_source_unpin(cf_source *source, cf_tree *tree);
/* Frees all trees without a pin: nothing will be read any more. */
void cf_source_forget(cf_source *source);

/* What a file is, by its first bytes, whatever it is called; a zip that is not numpy's passes for
 * torch's. */
typedef enum cf_content {
    CF_CONTENT_UNKNOWN,
    CF_CONTENT_EMPTY,
    CF_CONTENT_TORCH,
    CF_CONTENT_NPZ,
    CF_CONTENT_STREAM, /* torch, before 1.6 */
    CF_CONTENT_NPY,
    CF_CONTENT_PICKLE,
    CF_CONTENT_SAFETENSORS,
    CF_CONTENT_JSON,
    CF_CONTENT_TEXT,
    CF_CONTENT_LFS
} cf_content;
bool cf_source_content(const cf_source *source, uint32_t file, cf_content *kind, cf_err *err);
const char *cf_content_name(cf_content kind); /* "torch"; NULL: not known */

/* What a value is: itself, or what lies in the item that it stands for, read now. Everything in
 * arena. */
bool cf_source_value(cf_source *source, const cf_node *node, cf_arena *arena, const cf_node **value,
                     cf_err *err);
/* The elements of a dense view, read now, in arena; E_LIMIT beyond `most` bytes, E_TYPE where they
 * are compressed or not in a file. checked: they were held against their record's checksum. */
bool cf_source_bytes(cf_source *source, const cf_view *view, size_t most, cf_arena *arena,
                     const uint8_t **bytes, bool *checked, cf_err *err);

static inline bool cf_node_is_item(const cf_node *node)
{
    return node->kind == CF_NODE_STORAGE && node->storage->place == CF_IN_ITEM;
}

/* The source of a chain that a file is of; *file becomes its number there. */
static inline const cf_source *cf_source_of(const cf_source *source, uint32_t *file)
{
    for (; *file >= source->dir.count && source->next; source = source->next)
        *file -= source->dir.count;
    return source;
}

static inline const char *cf_source_path(const cf_source *source, uint32_t file)
{
    source = cf_source_of(source, &file);
    return source->dir.files[file].path;
}

void cf_source_note(cf_source *source, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
