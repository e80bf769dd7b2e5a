/* What a file is, is told by its first bytes; its suffix decides only where they are broken, so
 * that a cut model.safetensors is called a cut safetensors file and not an unknown one. */
#include "source.h"

#include <libdeflate.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "item.h"
#include "json.h"
#include "npy.h"
#include "safetensors.h"
#include "torchfile.h"

enum {
    KEEP = 16 << 20,      /* bytes of trees kept without a pin */
    MOST_TEXT = 64 << 20, /* bytes of a text file */
    MOST_JSON = 1 << 30,
    FREE_GROWTH = 256 << 20, /* what comes out may be so many bytes and */
    MOST_GROWTH = 1000,      /* so many for each byte of the files */
    TREE_BASE = 16 << 20,    /* a tree may take this and */
    TREE_PER_BYTE = 64       /* so many bytes for each byte of its file */
};

bool cf_source_bears(const cf_source *source, uint64_t size, cf_err *err)
{
    uint64_t files = 0;
    for (const cf_source *s = source; s; s = s->next)
        for (size_t i = 0; i < s->dir.count; i++) files += s->dir.files[i].size;
    if (size <= FREE_GROWTH || (size - FREE_GROWTH) / MOST_GROWTH <= files) return true;
    cf_text want = {0}, have = {0};
    cf_text_size(&want, size);
    cf_text_size(&have, files);
    cf_fail(err, CF_E_LIMIT, "%s of tensors from %s of files", want.at ? want.at : "",
            have.at ? have.at : "");
    cf_text_free(&want);
    cf_text_free(&have);
    return cf_err_hint(err, "a tensor is expanded from few elements: --exclude leaves it out, "
                            "--to torch keeps it as it is");
}

bool cf_source_open(cf_source *source, const char *const *paths, int count, bool inert, cf_err *err)
{
    memset(source, 0, sizeof *source);
    pthread_mutex_init(&source->lock, NULL);
    cf_arena_init(&source->arena, 0);
    source->inert = inert;
    if (!cf_dir_list(&source->dir, paths, count, &source->arena, err)) return false;
    source->trees = CF_NEWS(&source->arena, cf_tree, source->dir.count);
    for (uint32_t i = 0; source->trees && i < source->dir.count; i++) {
        source->trees[i].file = i;
        pthread_mutex_init(&source->trees[i].lock, NULL);
    }
    return cf_arena_ok(&source->arena, err);
}

void cf_source_close(cf_source *source)
{
    for (uint32_t i = 0; source->trees && i < source->dir.count; i++) {
        cf_arena_free(&source->trees[i].arena);
        cf_arena_free(&source->trees[i].keep);
        pthread_mutex_destroy(&source->trees[i].lock);
    }
    cf_text_free(&source->notes);
    cf_arena_free(&source->arena);
    pthread_mutex_destroy(&source->lock);
}

void cf_source_note(cf_source *source, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    pthread_mutex_lock(&source->lock);
    cf_text_printf(&source->notes, "%s\n", line);
    pthread_mutex_unlock(&source->lock);
}

static bool torch_suffix(const char *path)
{
    return cf_text_ends(path, ".pt") || cf_text_ends(path, ".pth") || cf_text_ends(path, ".bin") ||
           cf_text_ends(path, ".ckpt");
}

/* Text, or JSON where the suffix or the first character says so. */
static bool read_text(const cf_span *span, const char *path, cf_tree *tree, cf_err *err)
{
    if (span->size == 0 && torch_suffix(path)) return cf_fail(err, CF_E_TRUNCATED, "an empty file");
    char first = 0;
    if (span->size && !cf_span_read(span, 0, &first, 1, err)) return false;
    const bool json = first == '{' || first == '[' || cf_text_ends(path, ".json");
    if (json && span->size > MOST_JSON)
        return cf_fail(err, CF_E_LIMIT, "JSON of %llu bytes, at most %d",
                       (unsigned long long)span->size, MOST_JSON);
    if (!json && span->size > MOST_TEXT)
        return cf_fail(err, CF_E_MAGIC, "a file of a kind that is not known");
    char *text = cf_alloc(&tree->arena, span->size + 1);
    if (!text) return cf_arena_ok(&tree->arena, err);
    if (!cf_span_read(span, 0, text, span->size, err)) return false;
    text[span->size] = '\0';
    if (json && torch_suffix(path))
        return cf_fail(err, CF_E_MAGIC, "JSON, and no file of torch.save");
    if (json) return cf_json_read(text, span->size, &tree->arena, &tree->root, err);
    const bool binary = memchr(text, 0, span->size) || cf_utf8_valid(text, span->size) < span->size;
    if (binary || torch_suffix(path))
        return cf_fail(err, CF_E_MAGIC, "a file of a kind that is not known");
    tree->root = cf_node_text(&tree->arena, CF_NODE_STRING, text, span->size);
    return cf_arena_ok(&tree->arena, err);
}

static const char *const kind_names[] = {[CF_CONTENT_EMPTY] = "empty",
                                         [CF_CONTENT_TORCH] = "torch",
                                         [CF_CONTENT_NPZ] = "npz",
                                         [CF_CONTENT_NPY] = "npy",
                                         [CF_CONTENT_STREAM] = "torch",
                                         [CF_CONTENT_PICKLE] = "pickle",
                                         [CF_CONTENT_SAFETENSORS] = "safetensors",
                                         [CF_CONTENT_JSON] = "json",
                                         [CF_CONTENT_TEXT] = "text",
                                         [CF_CONTENT_LFS] = "lfs"};

const char *cf_content_name(cf_content kind)
{
    return kind_names[kind];
}

/* By its first bytes; an npz passes for a torch zip. */
static cf_content kind_of(const uint8_t *head, size_t n)
{
    static const char LFS[] = "version https://git-lfs";
    if (n == 0) return CF_CONTENT_EMPTY;
    if (n >= sizeof LFS - 1 && memcmp(head, LFS, sizeof LFS - 1) == 0) return CF_CONTENT_LFS;
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0) return CF_CONTENT_TORCH;
    if (cf_npy_magic(head, n)) return CF_CONTENT_NPY;
    if (cf_torch_legacy_magic(head, n)) return CF_CONTENT_STREAM;
    if (head[0] == '{' || head[0] == '[') return CF_CONTENT_JSON;
    if (n > 8 && head[8] == '{') return CF_CONTENT_SAFETENSORS;
    if (n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5) return CF_CONTENT_PICKLE;
    const size_t good = cf_utf8_valid((const char *)head, n); /* the last letter may be cut */
    return memchr(head, 0, n) || good + 4 <= n ? CF_CONTENT_UNKNOWN : CF_CONTENT_TEXT;
}

static bool read_head(const cf_span *span, uint8_t head[64], size_t *n, cf_err *err)
{
    *n = span->size < 64 ? span->size : 64;
    return cf_span_read(span, 0, head, *n, err);
}

bool cf_source_content(const cf_source *source, uint32_t file, cf_content *kind, cf_err *err)
{
    const cf_dir_file *is = &source->dir.files[file];
    int fd;
    if (!cf_dir_open(&source->dir, file, &fd, err)) return cf_err_in_file(err, is->path);
    const cf_span span = cf_span_of_file(fd, is->size);
    uint8_t head[64];
    size_t n;
    const bool ok = read_head(&span, head, &n, err);
    if (ok && (*kind = kind_of(head, n)) == CF_CONTENT_TORCH) {
        cf_arena arena;
        cf_arena_init(&arena, 0);
        if (cf_npz_is(&span, &arena)) *kind = CF_CONTENT_NPZ;
        cf_arena_free(&arena);
    }
    close(fd);
    return ok || cf_err_in_file(err, is->path);
}

static bool read_root(const cf_span *span, const char *path, bool inert, cf_err *cut, cf_tree *tree,
                      char *forbidden, cf_err *err)
{
    uint8_t head[64];
    size_t n;
    CF_TRY(read_head(span, head, &n, err));
    cf_reading r = {
        .tree = &tree->arena, .keep = &tree->keep, .file = tree->file, .inert = inert, .cut = cut};
    cf_content kind = kind_of(head, n);
    const bool marked = kind == CF_CONTENT_LFS || kind == CF_CONTENT_TORCH ||
                        kind == CF_CONTENT_STREAM || kind == CF_CONTENT_NPY;
    if (!marked && cf_text_ends(path, ".safetensors")) kind = CF_CONTENT_SAFETENSORS;
    bool ok;
    switch (kind) {
    case CF_CONTENT_LFS:
        cf_fail(err, CF_E_MAGIC, "a Git LFS pointer, not the file it stands for");
        return cf_err_hint(err, "git lfs pull fetches the real file");
    case CF_CONTENT_TORCH:
        ok = cf_torch_zip_read(span, &r, &tree->root, err);
        if (!ok && err->code == CF_E_MAGIC && cf_npz_is(span, &tree->arena))
            ok = cf_npz_read(span, &r, &tree->root, err);
        break;
    case CF_CONTENT_NPY: ok = cf_npy_read(span, &r, &tree->root, err); break;
    case CF_CONTENT_STREAM: ok = cf_torch_legacy_read(span, &r, &tree->root, err); break;
    case CF_CONTENT_SAFETENSORS:
        return cf_safetensors_read(span, &r, &tree->root, &tree->meta, err);
    case CF_CONTENT_PICKLE: ok = cf_pickle_file_read(span, &r, &tree->root, err); break;
    default:
        if (!torch_suffix(path) || !cf_zip_has_end(span)) return read_text(span, path, tree, err);
        ok = cf_torch_zip_read(span, &r, &tree->root, err); /* which says what is wrong with it */
    }
    memcpy(forbidden, r.forbidden, sizeof r.forbidden);
    return ok;
}

static bool parse(cf_source *source, cf_tree *tree, cf_err *err)
{
    const cf_dir_file *file = &source->dir.files[tree->file];
    int fd;
    if (!cf_dir_open(&source->dir, tree->file, &fd, err)) return cf_err_in_file(err, file->path);
    /* what was located stays; a tree that is parsed again finds new storages at the same places */
    const size_t limit =
        TREE_BASE +
        (file->size > SIZE_MAX / TREE_PER_BYTE / 2 ? SIZE_MAX / 2 : file->size * TREE_PER_BYTE);
    cf_arena_init(&tree->arena, limit);
    tree->keep.limit = 0;
    tree->root = tree->meta = NULL;
    char forbidden[192] = "";
    const cf_span span = cf_span_of_file(fd, file->size);
    cf_err cut = {0};
    bool ok = read_root(&span, file->path, source->inert, source->salvage ? &cut : NULL, tree,
                        forbidden, err);
    close(fd);
    if (ok && cut.code) {
        cf_err_add_file(&cut, file->path);
        cf_faults_take(source->faults, &cut);
    }
    if (ok && !tree->meta) {
        tree->meta = cf_node_new(&tree->arena, CF_NODE_DICT);
        ok = cf_arena_ok(&tree->arena, err);
    }
    if (!ok) {
        cf_arena_free(&tree->arena);
        return cf_err_in_file(err, file->path);
    }
    if (forbidden[0])
        cf_source_note(source,
                       "%s names %s, which is refused without --inert; nothing was executed",
                       file->path, forbidden);
    return true;
}

bool cf_source_pin(cf_source *source, uint32_t file, cf_tree **out, cf_err *err)
{
    cf_tree *tree = &source->trees[file];
    pthread_mutex_lock(&tree->lock);
    if (!(tree->generation & 1) && !tree->failed) {
        if (parse(source, tree, &tree->err))
            tree->generation++;
        else
            tree->failed = true;
    }
    const bool ok = !tree->failed;
    if (ok) {
        pthread_mutex_lock(&source->lock);
        if (tree->pins++ == 0 && tree->stamp) source->kept -= tree->arena.held;
        pthread_mutex_unlock(&source->lock);
        *out = tree;
    } else {
        *err = tree->err;
    }
    pthread_mutex_unlock(&tree->lock);
    return ok;
}

/* Frees the trees that nobody has looked into for longest until no more than `most` is kept, but
 * for the last one if `last`: what told the format is read next. The lock of a tree is only tried:
 * one that is being pinned right now is no candidate. */
static void trim(cf_source *source, uint64_t most, bool last)
{
    while (source->kept > most) {
        cf_tree *oldest = NULL;
        for (uint32_t i = 0; i < source->dir.count; i++) {
            cf_tree *t = &source->trees[i];
            if ((t->generation & 1) && t->pins == 0 && t->stamp &&
                !(last && t->stamp == source->clock) && (!oldest || t->stamp < oldest->stamp))
                oldest = t;
        }
        if (!oldest || pthread_mutex_trylock(&oldest->lock) != 0) return;
        source->kept -= oldest->arena.held;
        cf_arena_free(&oldest->arena);
        oldest->root = oldest->meta = NULL;
        oldest->stamp = 0;
        oldest->generation++;
        pthread_mutex_unlock(&oldest->lock);
    }
}

void cf_source_unpin(cf_source *source, cf_tree *tree)
{
    pthread_mutex_lock(&source->lock);
    if (--tree->pins == 0) {
        tree->stamp = ++source->clock;
        source->kept += tree->arena.held;
        trim(source, KEEP, true);
    }
    pthread_mutex_unlock(&source->lock);
}

void cf_source_forget(cf_source *source)
{
    pthread_mutex_lock(&source->lock);
    trim(source, 0, false);
    pthread_mutex_unlock(&source->lock);
}

static bool take_text(void *ctx, const uint8_t *bytes, size_t size, cf_err *err)
{
    cf_text_add(ctx, bytes, size);
    return cf_text_ok(ctx, err);
}

static bool read_item(const cf_storage *s, const cf_span *file, cf_arena *arena, cf_node **root,
                      cf_err *err)
{
    cf_reading r = {.tree = arena, .keep = arena, .file = s->file};
    if (!s->claim->zstd) return cf_item_value(file, s->offset, s->packed, &r, root, err);
    cf_span slice;
    cf_text text = {0};
    bool ok = cf_span_part(file, s->offset, s->packed, &slice, err) &&
              cf_item_unpack(&slice, MOST_TEXT, take_text, &text, err);
    const void *bytes = ok ? cf_memdup(arena, text.at, text.size) : NULL;
    if (ok && !bytes) ok = cf_arena_ok(arena, err);
    slice = cf_span_of_bytes(bytes, text.size);
    cf_text_free(&text);
    return ok && cf_item_value(&slice, 0, slice.size, &r, root, err);
}

bool cf_source_value(cf_source *source, const cf_node *node, cf_arena *arena, const cf_node **value,
                     cf_err *err)
{
    *value = node;
    if (!cf_node_is_item(node)) return true;
    const cf_storage *s = node->storage;
    uint32_t number = s->file;
    const cf_dir *dir = &cf_source_of(source, &number)->dir;
    int fd;
    if (!cf_dir_open(dir, number, &fd, err)) return false;
    const cf_span file = cf_span_of_file(fd, dir->files[number].size);
    cf_node *root;
    const bool ok = read_item(s, &file, arena, &root, err);
    close(fd);
    if (ok)
        *value = root;
    else
        cf_err_add_file(err, cf_source_path(source, s->file));
    return ok;
}

bool cf_source_bytes(cf_source *source, const cf_view *view, size_t most, cf_arena *arena,
                     const uint8_t **bytes, bool *checked, cf_err *err)
{
    const cf_storage *s = view->storage;
    const size_t size = (size_t)(view->numel * cf_dtype_size(view->dtype));
    *checked = false;
    if (size > most)
        return cf_fail(err, CF_E_LIMIT, "a value of %zu bytes, at most %zu", size, most);
    if (s->place == CF_IN_MEMORY) {
        *bytes = s->bytes + view->offset;
        return true;
    }
    if (s->place != CF_IN_FILE)
        return cf_fail(err, CF_E_TYPE, "a value inside a tensor that is compressed or an item");
    uint8_t *own = cf_alloc(arena, size);
    uint32_t number = s->file;
    const cf_dir *dir = &cf_source_of(source, &number)->dir;
    int fd;
    if (!own) return cf_arena_ok(arena, err);
    CF_TRY(cf_dir_open(dir, number, &fd, err));
    const cf_span file = cf_span_of_file(fd, dir->files[number].size);
    bool ok = cf_span_read(&file, s->offset + view->offset, own, size, err);
    close(fd);
    *checked = ok && s->has_crc && view->offset == 0 && size == s->size;
    if (*checked && libdeflate_crc32(0, own, size) != s->crc) {
        cf_err_set(err, CF_E_ZIP_CRC, "its bytes are not those that were written");
        ok = cf_err_in_member(err, s->name);
    }
    if (!ok) cf_err_add_file(err, cf_source_path(source, s->file));
    *bytes = own;
    return ok;
}
