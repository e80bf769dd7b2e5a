/* Sound plans with patches: what cf_block_open lets through can be carried out. First byte: which
 * plan; then patches of 6 bytes: section, two of place, how, two of value. */
#include <string.h>

#include <unistd.h>

#include "execute.h"
#include "fuzz.h"
#include "planned.h"

enum { MOST = 1 << 20, PATCH = 6 };

static const char *fixtures[] = {"torch/plain.pt", "torch/deflated_storage.pt", "torch/views.pt",
                                 "ranks/whole", "torch/objects.pt"};
enum { PLANS = sizeof fixtures / sizeof *fixtures };
static cf_text plans[PLANS];
static char folder[] = "/tmp/ckptflow-fuzz-XXXXXX", out[64];

static void leave(void)
{
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    cf_scripts scripts;
    fuzz_scripts(&scripts);
    for (int i = 0; i < PLANS; i++) {
        fixtures[i] = fuzz_fixture(fixtures[i]);
        cf_source source;
        cf_catalogue cat;
        cf_err err;
        CLAIM(cf_source_open(&source, &fixtures[i], 1, false, &err));
        cf_catalogue_init(&cat, &source);
        CLAIM(cf_host_read(&scripts, &source, NULL, 1, &cat, &err));
        CLAIM(fuzz_plan(&scripts, &cat, &plans[i], &err));
        cf_catalogue_free(&cat);
        cf_source_close(&source);
    }
    cf_scripts_free(&scripts);
    CLAIM(mkdtemp(folder));
    snprintf(out, sizeof out, "%s/out", folder);
    atexit(leave);
    return 0;
}

static void patch(uint8_t *bytes, size_t size, const uint8_t *how)
{
    const cf_b_head *head = (const void *)bytes;
    const int section = how[0] % (CF_B_SECTIONS + 1);
    const size_t from = section < CF_B_SECTIONS ? head->at[section] : 0;
    if (from >= size) return;
    const size_t at = from + (how[1] << 8 | how[2]) % (size - from), word = at / 8 * 8;
    int64_t value;
    memcpy(&value, bytes + word, sizeof value);
    const int16_t by = (int16_t)(how[4] << 8 | how[5]);
    if (how[3] % 4 == 0) value = by;
    if (how[3] % 4 == 1) value = (int64_t)((uint64_t)value + (uint64_t)by);
    if (how[3] % 4 == 2) value = INT64_MAX - (by & 0xff);
    if (how[3] % 4 == 3)
        bytes[at] = how[5];
    else
        memcpy(bytes + word, &value, sizeof value);
}

/* Carries out what is small, on real files. */
static void carry_out(const cf_block *block, const char *const *root)
{
    cf_price price;
    cf_means means;
    cf_err err;
    if (!cf_means_fit(&means, block, 1, CF_IO_MMAP, CF_MAX_MEM, &err)) return;
    cf_block_price(block, &means, &price);
    if (price.written > MOST || price.read > MOST || price.scratch > MOST) return;
    cf_sink sink;
    cf_outcome outcome;
    if (!cf_sink_begin(&sink, out, true, &err)) return;
    const cf_execution x = {
        .block = block, .roots = root, .n_roots = 1, .threads = 1, .means = &means};
    if (cf_execute(&x, &sink, &outcome, &err)) cf_manifest_write(&x, &outcome, &sink, &err);
    cf_outcome_free(&outcome);
    cf_sink_discard(&sink);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int which = size ? data[0] % PLANS : 0;
    const cf_text *plan = &plans[which];
    uint8_t *bytes = malloc(plan->size);
    memcpy(bytes, plan->at, plan->size);
    for (size_t at = 1; at + PATCH <= size; at += PATCH) patch(bytes, plan->size, data + at);
    cf_block block;
    cf_err err;
    const bool sound = cf_block_open(&block, bytes, plan->size, 1, &err);
    CLAIM(sound || size > PATCH);
    if (sound) carry_out(&block, &fixtures[which]);
    free(bytes);
    return 0;
}
