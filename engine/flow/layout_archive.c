/* One archive of torch.save as chunks: gaps of known bytes and payloads in turn, and the seals that
 * put the CRC of each payload where the gaps have it. */
#include "laying.h"

/* Number of the chunk of a storage, or of the serialization id, which is the last of them. */
static uint64_t chunk_of(const cf_archive *a, uint64_t storage)
{
    return a->first + 2 * (storage == CF_TORCH_THE_ID ? a->z.n : storage) + 1;
}

/* The bytes up to the payload at z->at. */
static void lay_gap(cf_layout *l, cf_archive *a)
{
    const cf_torch_layout *z = &a->z;
    const uint64_t number = cf_lay_chunks(l), end = a->base + z->at;
    const size_t n = cf_torch_patches(z);
    for (size_t i = 0; i < n; i++) {
        const cf_torch_patch *p = &((const cf_torch_patch *)(const void *)z->patches.at)[i];
        const cf_b_seal seal = {.chunk = (uint32_t)number,
                                .first = (uint32_t)chunk_of(a, p->storage),
                                .count = 1,
                                .at = p->at};
        cf_blocker_add(l->b, CF_B_SEALS, &seal, sizeof seal);
    }
    const cf_b_chunk chunk = {.begin = end - z->gap.size,
                              .end = end,
                              .bytes = cf_blocker_text(l->b, z->gap.at, z->gap.size),
                              .tensor = CF_B_NONE,
                              .late = n > 0};
    cf_blocker_add(l->b, CF_B_CHUNKS, &chunk, sizeof chunk);
}

void cf_lay_archive(cf_layout *l, cf_archive *a, uint64_t base, const char *top,
                    const cf_text *pickle)
{
    *a = (cf_archive){.base = base, .first = cf_lay_chunks(l)};
    cf_torch_layout_begin(&a->z, top, pickle->at, pickle->size);
}

uint64_t cf_lay_storage(cf_layout *l, cf_archive *a, uint64_t size)
{
    cf_torch_layout_storage(&a->z, size);
    lay_gap(l, a);
    return a->base + a->z.at;
}

bool cf_lay_archive_end(cf_layout *l, cf_archive *a, uint64_t *end, cf_err *err)
{
    cf_torch_layout *z = &a->z;
    cf_torch_layout_id(z);
    lay_gap(l, a);
    const uint64_t number = cf_lay_chunks(l), at = a->base + z->at;
    const cf_b_seal seal = {.chunk = (uint32_t)number,
                            .first = (uint32_t)a->first,
                            .count = (uint32_t)(number - a->first),
                            .digits = CF_TORCH_ID - CF_TORCH_ID_KNOWN,
                            .at = CF_TORCH_ID_KNOWN};
    const cf_b_chunk id = {.begin = at,
                           .end = at + CF_TORCH_ID,
                           .bytes = cf_blocker_text(l->b, z->id, CF_TORCH_ID),
                           .tensor = CF_B_NONE,
                           .late = true};
    cf_blocker_add(l->b, CF_B_SEALS, &seal, sizeof seal);
    cf_blocker_add(l->b, CF_B_CHUNKS, &id, sizeof id);
    bool ok = cf_torch_layout_end(z, err);
    if (ok && (z->at > INT64_MAX - a->base || number >= UINT32_MAX - 2))
        ok = cf_fail(err, CF_E_OVERFLOW, "an archive of more than 2^63 bytes or 2^31 tensors");
    if (ok) lay_gap(l, a);
    *end = a->base + z->at;
    cf_torch_layout_free(z);
    return ok;
}
