#include "layout.h"

#include <string.h>

#include "laying.h"
#include "pattern.h"
#include "sink.h"

uint64_t cf_lay_chunks(const cf_layout *l)
{
    return l->b->sections[CF_B_CHUNKS].size / sizeof(cf_b_chunk);
}

void cf_lay_chunk(cf_layout *l, uint64_t begin, uint64_t size, cf_ref bytes)
{
    const cf_b_chunk chunk = {
        .begin = begin, .end = begin + size, .bytes = bytes, .tensor = CF_B_NONE};
    cf_blocker_add(l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
}

void cf_lay_file(cf_layout *l, const char *path, uint64_t size, uint64_t first)
{
    const cf_b_file file = {.path = cf_blocker_text(l->b, path, strlen(path)),
                            .size = size,
                            .chunk = first,
                            .chunks = cf_lay_chunks(l) - first};
    cf_blocker_add(l->b, CF_B_FILES, &file, sizeof file);
}

void cf_lay_bytes(cf_layout *l, const char *path, const cf_text *text)
{
    const uint64_t first = cf_lay_chunks(l);
    cf_lay_chunk(l, 0, text->size, cf_blocker_text(l->b, text->at ? text->at : "", text->size));
    cf_lay_file(l, path, text->size, first);
}

static bool add_entries(cf_layout *l, const cf_write *w, cf_err *err)
{
    cf_items items = {0};
    return cf_lay_items(l, w, &items, err) &&
           cf_lay_safetensors(l, w->path, &items, &w->options, err);
}

/* The length of the folder's path, "/" included, that all files lie in which were read: a format
 * may have found them deep in what was named. */
static size_t common_folder(const cf_catalogue *cat)
{
    const char *first = NULL;
    size_t length = 0;
    for (uint32_t i = 0; cat->was_read && i < cat->source->dir.count; i++) {
        const char *path = cat->source->dir.files[i].path;
        if (!cat->was_read[i]) continue;
        size_t same = 0, folder = 0;
        for (; path[same] && (!first || (same < length && path[same] == first[same])); same++)
            if (path[same] == '/') folder = same + 1;
        if (!first) first = path;
        length = folder;
    }
    return length;
}

/* Never a file that the format read, an index, a manifest, or a path the plan writes. */
static bool may_copy(const cf_layout *l, uint32_t file, const char *path)
{
    if (l->plan->cat->was_read && l->plan->cat->was_read[file]) return false;
    if (cf_text_ends(path, ".index.json") || cf_sink_reserved(path)) return false;
    const cf_text *files = &l->b->sections[CF_B_FILES];
    const cf_b_file *f = (const cf_b_file *)(const void *)files->at;
    for (size_t i = 0; i < files->size / sizeof *f; i++)
        if (strcmp(l->b->sections[CF_B_BYTES].at + f[i].path.at, path) == 0) return false;
    return true;
}

/* Files in the folder whose path has `length` bytes, under their names there. */
static bool add_copies_of(cf_layout *l, size_t length, cf_err *err)
{
    const cf_dir *dir = &l->plan->cat->source->dir;
    const char *read = NULL;
    for (uint32_t i = 0; length && !read; i++)
        if (l->plan->cat->was_read[i]) read = dir->files[i].path;
    for (uint32_t i = 0; i < dir->count; i++) {
        const char *path = dir->files[i].path + length;
        bool wanted = false;
        if (dir->files[i].twin || dir->files[i].packed) continue;
        if (length && strncmp(dir->files[i].path, read, length) != 0) continue;
        for (size_t k = 0; k < l->plan->n_copies && !wanted; k++)
            wanted = cf_pattern_match(l->plan->copies[k].glob, path, NULL);
        if (!wanted || !may_copy(l, i, path)) continue;
        const uint64_t size = dir->files[i].size;
        cf_b_chunk chunk = {.end = size, .tensor = CF_B_NONE, .dtype = CF_U8};
        if (size) {
            const cf_b_move move = {
                .run = size, .record = cf_mover_file(&l->mover, i), .dtype = CF_U8, .cast = CF_U8};
            chunk.move = cf_blocker_add(l->b, CF_B_MOVES, &move, sizeof move);
            chunk.moves = 1;
        }
        const uint64_t first = cf_blocker_add(l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
        cf_lay_file(l, path, size, first);
    }
    return cf_text_ok(&l->b->sections[CF_B_CHUNKS], err);
}

/* What lies beside the files that were read, then what lies at the top. */
static bool add_copies(cf_layout *l, cf_err *err)
{
    const size_t deep = common_folder(l->plan->cat);
    return (!deep || add_copies_of(l, deep, err)) && add_copies_of(l, 0, err);
}

static bool lay_out(cf_layout *l, cf_err *err)
{
    const cf_plan *plan = l->plan;
    for (size_t i = 0; i < plan->n_writes; i++)
        if (plan->writes[i].writer == CF_WRITE_JSON && !cf_lay_values(l, i, err)) return false;
    for (size_t i = 0; i < plan->n_writes; i++)
        if (plan->writes[i].writer == CF_WRITE_SAFETENSORS && !l->written[i] &&
            !add_entries(l, &plan->writes[i], err))
            return false;
    for (size_t i = 0; i < plan->n_writes; i++)
        if (plan->writes[i].writer == CF_WRITE_TORCH && !cf_lay_torch(l, i, err)) return false;
    for (size_t i = 0; i < plan->n_writes; i++)
        if (plan->writes[i].writer == CF_WRITE_DCP && !cf_lay_dcp(l, i, err)) return false;
    for (size_t i = 0; i < plan->n_writes; i++)
        if (plan->writes[i].writer == CF_WRITE_NPY && !cf_lay_npy(l, i, err)) return false;
    return add_copies(l, err) && cf_mover_checks(&l->mover, err) && cf_lay_names(l, err);
}

/* A few bytes that stand for terabytes, as a stride of 0 can, are not written out. */
static bool in_proportion(const cf_layout *l, cf_err *err)
{
    const cf_text *files = &l->b->sections[CF_B_FILES];
    const cf_b_file *f = (const cf_b_file *)(const void *)files->at;
    uint64_t sum = 0, largest = 0;
    for (size_t i = 0; i < files->size / sizeof *f; i++) {
        if (f[i].size > f[largest].size) largest = i;
        sum = f[i].size > UINT64_MAX - sum ? UINT64_MAX : sum + f[i].size;
    }
    if (cf_source_bears(l->plan->cat->source, sum, err)) return true;
    return cf_err_in_file(err, l->b->sections[CF_B_BYTES].at + f[largest].path.at);
}

bool cf_plan_layout(cf_plan *plan, cf_blocker *b, cf_err *err)
{
    cf_layout l = {.plan = plan, .b = b};
    l.written = CF_NEWS(&plan->arena, bool, plan->n_writes + 1);
    bool ok = l.written && cf_mover_init(&l.mover, plan->cat->source, b, err) && lay_out(&l, err) &&
              in_proportion(&l, err);
    cf_mover_free(&l.mover);
    if (l.n_differ)
        cf_text_printf(&plan->notes,
                       "%zu tensor%s without a role differ%s between ranks, %s: %s%s\n", l.n_differ,
                       l.n_differ > 1 ? "s" : "", l.n_differ > 1 ? "" : "s",
                       cf_values_kept(plan->cat->values, l.n_differ), l.differ.at,
                       l.n_differ > 8 ? ", ..." : "");
    cf_text_free(&l.differ);
    cf_text_free(&l.values);
    return ok && cf_arena_ok(&plan->arena, err);
}
