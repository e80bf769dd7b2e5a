#include "run_result.h"

#include <string.h>

#include "memory.h"
#include "print.h"

static void show_json(cf_text *text, const cf_options *o, const char *out, const cf_block *b,
                      const cf_outcome *done, double seconds, const cf_shares *shares)
{
    cf_text_str(text, "{\"schema\":\"ckptflow.run/1\",\"out\":");
    cf_text_json(text, out, strlen(out));
    cf_text_printf(text,
                   ",\"read\":%llu,\"requests\":%llu,\"written\":%llu,\"read_back\":%llu,"
                   "\"memory\":%llu,\"windows\":%llu,\"resumed\":%llu,\"seconds\":%.3f,",
                   (unsigned long long)done->read, (unsigned long long)done->requests,
                   (unsigned long long)done->written, (unsigned long long)done->read_back,
                   (unsigned long long)cf_memory_largest(cf_memory_peak()),
                   (unsigned long long)done->windows, (unsigned long long)done->found, seconds);
    if (shares) {
        cf_text_printf(text, "\"share\":{\"rank\":%u,\"of\":%u,\"complete\":%s,\"missing\":[",
                       o->share.rank, o->share.of, shares->complete ? "true" : "false");
        bool any = false;
        for (uint32_t i = 0; shares->missing && i < o->share.of; i++) {
            if (!shares->missing[i]) continue;
            cf_text_printf(text, any ? ",%u" : "%u", i);
            any = true;
        }
        cf_text_str(text, "]},");
    }
    cf_text_str(text, "\"files\":[");
    for (uint64_t i = 0; i < b->n_files; i++) {
        cf_text_str(text, i ? ",{\"path\":" : "{\"path\":");
        cf_text_json(text, cf_block_text(b, b->files[i].path), b->files[i].path.size);
        cf_text_printf(text, ",\"size\":%llu}", (unsigned long long)b->files[i].size);
    }
    cf_text_str(text, "],");
    cf_add_notes(text, cf_block_text(b, b->head->text[CF_B_NOTES]));
    cf_text_printf(text,
                   ",\"tensors\":{\"crc-verified\":%llu,\"replica-compared\":%llu,"
                   "\"unverified\":%llu}}\n",
                   (unsigned long long)done->n_checked[CF_CRC_VERIFIED],
                   (unsigned long long)done->n_checked[CF_REPLICA_COMPARED],
                   (unsigned long long)done->n_checked[CF_UNVERIFIED]);
}

static void show_found(cf_text *text, const cf_outcome *done)
{
    if (done->found)
        cf_text_printf(text, "%llu of %llu windows were done before\n",
                       (unsigned long long)done->found, (unsigned long long)done->windows);
    if (done->read_back) {
        cf_text_size(text, done->read_back);
        cf_text_str(text, " read back as written\n");
    }
}

/* All or nothing of the list: as "0/4 2/4", the first few. */
static void show_missing(cf_text *text, cf_share share, const bool *missing)
{
    enum { MOST = 16 };
    uint32_t told = 0, more = 0;
    for (uint32_t i = 0; i < share.of; i++) {
        if (!missing[i]) continue;
        if (told < MOST)
            cf_text_printf(text, " %u/%u", i, share.of);
        else
            more++;
        told++;
    }
    if (more) cf_text_printf(text, " and %u more", more);
}

static void show_share(cf_text *text, const cf_options *o, const char *out, const cf_outcome *done,
                       double seconds, const cf_shares *shares)
{
    cf_text_printf(text, "share %u/%u ", o->share.rank, o->share.of);
    if (shares->before) {
        cf_text_str(text, "was written before\n");
    } else {
        cf_text_str(text, "is written: ");
        cf_text_size(text, done->written);
        cf_text_printf(text, " in %.2f s\n", seconds);
    }
    show_found(text, done);
    if (shares->missing) {
        cf_text_str(text, "still missing:");
        show_missing(text, o->share, shares->missing);
        cf_text_str(text, "; the last one finishes ");
    } else {
        cf_text_str(text, "none is missing; another process finishes ");
    }
    cf_text_shown(text, out, strlen(out));
    cf_text_str(text, "\n");
}

uint64_t cf_files_shown(const cf_options *o, const cf_block *b)
{
    enum { MOST = 50 };
    return o->verbose || b->n_files <= MOST ? b->n_files : MOST;
}

void cf_show_run(cf_text *text, const cf_options *o, const char *out, const cf_block *b,
                 const cf_outcome *done, double seconds, const cf_shares *shares)
{
    if (o->json) {
        show_json(text, o, out, b, done, seconds, shares);
        return;
    }
    if (shares && !shares->complete) {
        show_share(text, o, out, done, seconds, shares);
        return;
    }
    cf_text_shown(text, out, strlen(out));
    cf_text_str(text, "\n");
    const uint64_t shown = cf_files_shown(o, b);
    for (uint64_t i = 0; i < shown; i++) {
        cf_text size = {0};
        cf_text_size(&size, b->files[i].size);
        cf_text_printf(text, "%12s  ", size.at ? size.at : "");
        cf_text_shown(text, cf_block_text(b, b->files[i].path), b->files[i].path.size);
        cf_text_str(text, "\n");
        cf_text_free(&size);
    }
    if (shown < b->n_files)
        cf_text_printf(text, "         and %llu more files\n",
                       (unsigned long long)(b->n_files - shown));
    cf_text_printf(text, "%llu tensors:", (unsigned long long)b->n_tensors);
    static const char *const HOW[] = {"unverified", "CRC verified", "replicas compared"};
    static const cf_checked ORDER[] = {CF_CRC_VERIFIED, CF_REPLICA_COMPARED, CF_UNVERIFIED};
    bool any = false;
    for (int i = 0; i < 3; i++) {
        if (!done->n_checked[ORDER[i]]) continue;
        cf_text_printf(text, "%s %llu %s", any ? "," : "",
                       (unsigned long long)done->n_checked[ORDER[i]], HOW[ORDER[i]]);
        any = true;
    }
    cf_text_str(text, any ? "; " : " none; ");
    cf_text_size(text, done->written);
    if (shares)
        cf_text_printf(text, " by %u shares, the last one in %.2f s\n", o->share.of, seconds);
    else
        cf_text_printf(text, " in %.2f s\n", seconds);
    show_found(text, done);
}

/* -v: what the run worked with, for whoever wonders why it is slow. */
void cf_print_means(const cf_means *m, const cf_outcome *done)
{
    static const char *const WAYS[] = {"auto", "pread", "mmap", "direct"};
    cf_text text = {0};
    cf_text_printf(&text, "%d thread%s, %s, tiles of ", m->threads, m->threads > 1 ? "s" : "",
                   WAYS[m->io]);
    cf_text_size(&text, m->tile);
    if (m->tall > m->tile) {
        cf_text_str(&text, " (transposed: up to ");
        cf_text_size(&text, m->tall);
        cf_text_str(&text, ")");
    }
    cf_text_str(&text, ", buffers of ");
    cf_text_size(&text, m->memory);
    cf_text_printf(&text, "; %llu requests", (unsigned long long)done->requests);
    if (done->plain)
        cf_text_printf(
            &text, "\n%llu file%s on a file system that cannot do --io %s: read by pread",
            (unsigned long long)done->plain, done->plain > 1 ? "s lie" : " lies", WAYS[m->io]);
    if (text.at) cf_print_notes(text.at);
    cf_text_free(&text);
}

/* held: bytes on disk of the partial output of a run before. */
bool cf_enough_space(const char *out, const cf_price *price, uint64_t n_tensors, uint64_t held,
                     cf_err *err)
{
    uint64_t free_bytes;
    if (!cf_free_space(out, &free_bytes, err)) return false;
    /* and the manifest, some 400 bytes a tensor */
    uint64_t more = price->written + price->scratch + 400 * n_tensors;
    more -= held < price->written ? held : price->written;
    if (more <= free_bytes) return true;
    cf_text need = {0}, have = {0};
    cf_text_size(&need, more);
    cf_text_size(&have, free_bytes);
    cf_fail(err, CF_E_SPACE, "%s are needed, %s are free", need.at, have.at);
    cf_text_free(&need);
    cf_text_free(&have);
    return false;
}
