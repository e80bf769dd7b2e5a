/* ckptflow-manifest.json: what was written, from what, and how sure it is. Written as text, entry
 * by entry: a tree of a million tensors would cost more than moving them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dtype.h"
#include "execute.h"
#include "records.h"

static void add_string(cf_text *out, const char *name, const cf_block *b, cf_ref ref)
{
    cf_text_printf(out, "\"%s\":", name);
    cf_text_json(out, cf_block_text(b, ref), ref.size);
}

/* Numbers of the sources that a chunk's bytes come from, each once, in the order of the list. */
static void add_sources(cf_text *out, const cf_block *b, const cf_b_chunk *c)
{
    cf_text_str(out, ",\"from\":[");
    int64_t last = -1;
    for (bool more = true, first = true; more; first = false) {
        int64_t next = INT64_MAX;
        uint64_t from, to;
        for (uint64_t t = 0; cf_chunk_moves(b, c, t, &from, &to); t++)
            for (uint64_t k = from; k < to; k++) {
                const cf_b_record *r = &b->records[b->moves[k].record];
                /* what lies in memory came out of the pickle of its source: not known by number */
                if (r->bytes.size || (int64_t)r->source <= last || (int64_t)r->source >= next)
                    continue;
                next = r->source;
            }
        more = next != INT64_MAX;
        if (more) cf_text_printf(out, first ? "%lld" : ",%lld", (long long)next);
        last = next;
    }
    cf_text_str(out, "]");
}

/* Of values, what is left out is the name or the role "rest"; of both, role_name is the name. */
static void add_names(cf_text *out, const cf_block *b, bool all, cf_ref name, cf_ref key,
                      cf_ref role, cf_ref role_name)
{
    const char *text = cf_block_text(b, name);
    cf_text_str(out, "{");
    add_string(out, "name", b, name);
    if (all || strcmp(cf_block_text(b, key), text) != 0) {
        cf_text_str(out, ",");
        add_string(out, "key", b, key);
    }
    if (all || strcmp(cf_block_text(b, role), "rest") != 0) {
        cf_text_str(out, ",");
        add_string(out, "role", b, role);
    }
    if (strcmp(cf_block_text(b, role_name), text) != 0) {
        cf_text_str(out, ",");
        add_string(out, "role_name", b, role_name);
    }
}

/* Where it is in the tree of a torch file. */
static void add_path(cf_text *out, const cf_block *b, cf_ref path)
{
    if (path.size) cf_text_printf(out, ",\"path\":%s", cf_block_text(b, path));
}

static void add_tensor(cf_text *out, const cf_block *b, const cf_outcome *o, uint64_t number)
{
    static const char *const CHECKED[] = {"unverified", "crc-verified", "replica-compared"};
    const cf_b_tensor *t = &b->tensors[number];
    const cf_b_chunk *c = &b->chunks[t->chunk];
    add_names(out, b, true, t->name, t->key, t->role, t->role_name);
    cf_text_printf(out, ",\"dtype\":\"%s\",\"shape\":[", cf_dtype_of((cf_dtype)t->dtype)->name);
    for (int d = 0; d < t->ndim; d++)
        cf_text_printf(out, d ? ",%lld" : "%lld", (long long)b->numbers[t->dims + (uint64_t)d]);
    cf_text_printf(out, "],\"offset\":%llu,\"size\":%llu,\"crc32\":\"%08x\",\"checked\":\"%s\"",
                   (unsigned long long)c->begin, (unsigned long long)(c->end - c->begin),
                   o->tensor_crc[number], CHECKED[o->tensor_check[number]]);
    add_sources(out, b, c);
    add_path(out, b, t->path);
    cf_text_str(out, "}");
}

/* The values of file number `file`; they are in the order of the files, next is where it stands. */
static void add_values(cf_text *out, const cf_block *b, uint64_t file, uint64_t *next)
{
    if (*next == b->n_values || b->values[*next].file != file) return;
    for (bool first = true; *next < b->n_values && b->values[*next].file == file; ++*next) {
        const cf_b_value *v = &b->values[*next];
        cf_text_str(out, first ? ",\"values\":[\n " : ",\n ");
        add_names(out, b, false, v->name, v->key, v->role, v->role_name);
        add_path(out, b, v->path);
        if (v->lacks.size) {
            cf_text_str(out, ",");
            add_string(out, "left_out", b, v->lacks);
        }
        cf_text_str(out, "}");
        first = false;
    }
    cf_text_str(out, "]");
}

static void write_text(cf_text *out, const cf_block *b, const cf_outcome *o)
{
    cf_text_str(out, "{\"schema\":\"ckptflow.manifest/1\",");
    add_string(out, "format", b, b->head->text[CF_B_FORMAT]);
    cf_text_str(out, ",");
    add_string(out, "recipe", b, b->head->text[CF_B_RECIPE]);
    cf_text_str(out, ",\n\"sources\":[");
    for (uint64_t i = 0; i < b->n_sources; i++) {
        cf_text_str(out, i ? ",\n{" : "\n{");
        add_string(out, "path", b, b->sources[i].path);
        cf_text_printf(out, ",\"size\":%llu}", (unsigned long long)b->sources[i].size);
    }
    cf_text_str(out, "],\n\"files\":[");
    uint64_t t = 0, v = 0;
    for (uint64_t i = 0; i < b->n_files; i++) {
        const cf_b_file *f = &b->files[i];
        cf_text_str(out, i ? ",\n{" : "\n{");
        add_string(out, "path", b, f->path);
        cf_text_printf(out, ",\"size\":%llu,\"crc32\":\"%08x\",\"tensors\":[",
                       (unsigned long long)f->size, o->file_crc[i]);
        bool first = true;
        for (; t < b->n_tensors && b->tensors[t].chunk < f->chunk + f->chunks; t++) {
            cf_text_str(out, first ? "\n " : ",\n ");
            add_tensor(out, b, o, t);
            first = false;
        }
        cf_text_str(out, "]");
        add_values(out, b, i, &v);
        cf_text_str(out, "}");
    }
    const cf_ref missing = b->head->text[CF_B_MISSING];
    cf_text_str(out, "]");
    if (missing.size) cf_text_printf(out, ",\n\"missing\":%s", cf_block_text(b, missing));
    cf_text_str(out, "}\n");
}

/* Does the file hold the text? */
static bool read_back(int fd, const cf_text *text, cf_err *err)
{
    char *bytes = malloc(text->size);
    if (!bytes) return cf_fail(err, CF_E_MEMORY, "out of memory");
    const cf_span span = cf_span_of_file(fd, text->size);
    bool ok = cf_drop_cache(fd, err) && cf_span_read(&span, 0, bytes, text->size, err);
    if (ok && memcmp(bytes, text->at, text->size) != 0)
        ok = cf_fail(err, CF_E_IO, "it does not come back from the disk as it was written");
    free(bytes);
    return ok;
}

bool cf_manifest_write(const cf_execution *x, const cf_outcome *outcome, cf_sink *sink, cf_err *err)
{
    cf_text text = {0};
    int fd = -1;
    write_text(&text, x->block, outcome);
    bool ok = cf_text_ok(&text, err) &&
              cf_sink_create(sink, CF_MANIFEST_NAME, text.size, &fd, err) &&
              cf_write_all(fd, text.at, text.size, 0, err);
    if (ok && x->fsync && fdatasync(fd) != 0) ok = cf_fail_sys(err, errno, "cannot finish writing");
    if (ok && x->verify) ok = read_back(fd, &text, err);
    if (fd >= 0 && close(fd) != 0 && ok) ok = cf_fail_sys(err, errno, "cannot finish writing");
    cf_text_free(&text);
    return ok || cf_err_in_file(err, CF_MANIFEST_NAME);
}
