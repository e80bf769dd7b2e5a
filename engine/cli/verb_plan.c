/* plan: the same as run, written down and priced; nothing is written but FILE with -o. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dtype.h"
#include "execute.h"
#include "memory.h"
#include "output.h"
#include "print.h"
#include "verbs.h"

static uint64_t tensors_of(const cf_block *b, const cf_b_file *f)
{
    uint64_t n = 0;
    for (uint64_t i = f->chunk; i < f->chunk + f->chunks; i++)
        n += b->chunks[i].tensor != CF_B_NONE;
    return n;
}

static void show_json(const cf_block *b, const cf_price *p, const char *out, uint64_t space,
                      cf_text *text)
{
    const char *names[] = {"format", "recipe"};
    const cf_b_text which[] = {CF_B_FORMAT, CF_B_RECIPE};
    cf_text_str(text, "{\"schema\":\"ckptflow.plan/1\"");
    for (int i = 0; i < 2; i++) {
        const cf_ref ref = b->head->text[which[i]];
        cf_text_printf(text, ",\"%s\":", names[i]);
        cf_text_json(text, cf_block_text(b, ref), ref.size);
    }
    cf_text_str(text, ",\"out\":");
    cf_text_json(text, out, strlen(out));
    cf_text_printf(
        text,
        ",\"read\":%llu,\"requests\":%llu,\"written\":%llu,\"scratch\":%llu,\"memory\":%llu,"
        "\"free\":%llu,\"moves\":%llu,\"comparisons\":%llu,\"files\":[",
        (unsigned long long)p->read, (unsigned long long)p->requests,
        (unsigned long long)p->written, (unsigned long long)(p->scratch + p->unpacked),
        (unsigned long long)p->memory, (unsigned long long)space, (unsigned long long)b->n_moves,
        (unsigned long long)b->n_compares);
    for (uint64_t i = 0; i < b->n_files; i++) {
        cf_text_str(text, i ? ",{\"path\":" : "{\"path\":");
        cf_text_json(text, cf_block_text(b, b->files[i].path), b->files[i].path.size);
        cf_text_printf(text, ",\"size\":%llu,\"tensors\":%llu}",
                       (unsigned long long)b->files[i].size,
                       (unsigned long long)tensors_of(b, &b->files[i]));
    }
    cf_text_str(text, "],");
    cf_add_notes(text, cf_block_text(b, b->head->text[CF_B_NOTES]));
    cf_text_str(text, ",\"sources\":[");
    for (uint64_t i = 0; i < b->n_sources; i++) {
        cf_text_str(text, i ? ",{\"path\":" : "{\"path\":");
        cf_text_json(text, cf_block_text(b, b->sources[i].path), b->sources[i].path.size);
        cf_text_printf(text, ",\"size\":%llu}", (unsigned long long)b->sources[i].size);
    }
    cf_text_str(text, "]}\n");
}

static void size_line(cf_text *text, const char *label, uint64_t bytes, const char *more)
{
    cf_text_printf(text, "%-8s ", label);
    cf_text_size(text, bytes);
    cf_text_printf(text, "%s\n", more);
}

static void show_text(const cf_block *b, const cf_price *p, const char *out, uint64_t space,
                      cf_text *text)
{
    cf_text why = {0};
    const cf_ref reason = b->head->text[CF_B_WHY];
    cf_text_shown(&why, cf_block_text(b, reason), reason.size);
    cf_text_printf(text, "%s: %s (%s), %llu files\n", cf_block_text(b, b->head->text[CF_B_RECIPE]),
                   cf_block_text(b, b->head->text[CF_B_FORMAT]), why.at ? why.at : "",
                   (unsigned long long)b->n_sources);
    cf_text_free(&why);
    cf_text_str(text, "to ");
    cf_text_shown(text, out, strlen(out));
    cf_text_str(text, "\n");
    for (uint64_t i = 0; i < b->n_files; i++) {
        const cf_b_file *f = &b->files[i];
        cf_text size = {0};
        cf_text_size(&size, f->size);
        cf_text_printf(text, "%12s  ", size.at ? size.at : "");
        cf_text_shown(text, cf_block_text(b, f->path), f->path.size);
        const uint64_t n = tensors_of(b, f);
        if (n) cf_text_printf(text, "  (%llu tensor%s)", (unsigned long long)n, n > 1 ? "s" : "");
        cf_text_str(text, "\n");
        cf_text_free(&size);
    }
    char more[64];
    snprintf(more, sizeof more, " in about %llu requests", (unsigned long long)p->requests);
    size_line(text, "reads", p->read, more);
    size_line(text, "writes", p->written, "");
    if (p->scratch)
        size_line(text, "scratch", p->scratch, " for compressed records, beside the output");
    if (p->unpacked)
        size_line(text, "scratch", p->unpacked, " for compressed files, beside the output");
    size_line(text, "memory", p->memory, " at the peak");
    size_line(text, "free", space,
              p->written + p->scratch + p->unpacked > space ? ": NOT ENOUGH" : "");
    if (b->n_compares)
        cf_text_printf(text, "%llu copies are compared first\n", (unsigned long long)b->n_compares);
}

static bool write_file(const char *path, const void *bytes, size_t size, cf_err *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) return cf_fail(err, CF_E_EXISTS, "%s: exists", path);
    if (fd < 0) return cf_fail(err, CF_E_IO, "%s: %s", path, strerror(errno));
    const char *p = bytes;
    bool ok = true;
    while (ok && size) {
        const ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            ok = cf_fail_sys(err, errno, "%s", path);
            break;
        }
        p += n;
        size -= (size_t)n;
    }
    if (close(fd) != 0 && ok) ok = cf_fail_sys(err, errno, "%s", path);
    if (!ok) unlink(path);
    return ok;
}

bool cf_verb_plan(const cf_options *o, cf_err *err)
{
    char out[PATH_MAX];
    cf_options run = *o;
    run.out = NULL; /* of plan, -o is the file of the plan itself */
    cf_reply reply;
    cf_block block;
    uint64_t space = 0;
    cf_err none;
    if (!cf_output_path(&run, out, err)) return false;
    bool ok = cf_block_job(cf_job_plan, o, o, &reply, &block, err);
    if (ok && !block.n_files) ok = cf_fail(err, CF_E_USAGE, "the plan writes nothing");
    if (ok && o->out) ok = write_file(o->out, reply.bytes, reply.size, err);
    cf_means means;
    ok = ok && cf_means_fit(&means, &block, o->threads, o->io, o->max_mem, err);
    if (ok) {
        cf_price price;
        cf_text text = {0};
        const uint64_t now = cf_memory_now(); /* a run stands here too before it writes */
        cf_block_price(&block, &means, &price);
        price.memory = cf_memory_largest(now + price.memory);
        if (!cf_free_space(out, &space, &none)) space = 0;
        (o->json ? show_json : show_text)(&block, &price, out, space, &text);
        ok = cf_print_out(&text, err);
        cf_text_free(&text);
    }
    cf_reply_free(&reply);
    return ok;
}
