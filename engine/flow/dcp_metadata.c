/* DCP's .metadata as torch 2.13 has it: torch.distributed.checkpoint.metadata.Metadata, with what
 * the planner knows of names, and what the storage writer knows of files. Ids of saves are left
 * empty: the same input gives the same bytes. Source: metadata.py, filesystem.py,
 * planner_helpers.py of torch/distributed/checkpoint, and pickles of 2.13. */
#include <stdio.h>
#include <string.h>

#include "dcp.h"
#include "item.h"
#include "pickle_write.h"

static const char META[] = "torch.distributed.checkpoint.metadata";

typedef struct writing {
    cf_pickler p;
    const cf_dcp *dcp;
    const uint32_t *order;
    uint32_t layout, format; /* in the memo, and 1: torch.strided, contiguous */
} writing;

/* Begins the state of a dataclass on the stack: a dict of n fields. */
static cf_filling fields(writing *w, size_t n)
{
    cf_pickle_dict(&w->p);
    return cf_pickle_fill_dict(n);
}

static void field(writing *w, cf_filling *f, const char *name)
{
    cf_pickle_item(&w->p, f);
    cf_pickle_text(&w->p, name);
}

static void end_fields(writing *w, cf_filling *f)
{
    cf_pickle_filled(&w->p, f);
    cf_pickle_build(&w->p);
}

static const cf_item *tensor_of(const writing *w, const cf_dcp_thing *thing)
{
    return &w->dcp->tensors.list[thing->tensor];
}

/* What a call gave before is fetched from the memo. */
static void again(writing *w, uint32_t *known, const char *module, const char *name,
                  const char *text, int64_t number)
{
    if (*known) {
        cf_pickle_get(&w->p, *known - 1);
        return;
    }
    cf_pickle_global(&w->p, module, name);
    cf_pickle_tuple(&w->p, 1);
    if (text)
        cf_pickle_text(&w->p, text);
    else
        cf_pickle_int(&w->p, number);
    cf_pickle_tuple_end(&w->p, 1);
    cf_pickle_reduce(&w->p);
    *known = cf_pickle_put(&w->p) + 1;
}

static void put_properties(writing *w, cf_dtype dtype)
{
    cf_pickle_object(&w->p, META, "TensorProperties");
    cf_pickle_tuple(&w->p, 5);
    cf_pickle_dtype(&w->p, dtype);
    again(w, &w->layout, "torch.serialization", "_get_layout", "torch.strided", 0);
    cf_pickle_bool(&w->p, false); /* requires_grad */
    again(w, &w->format, META, "_MEM_FORMAT_ENCODING", NULL, 0);
    cf_pickle_bool(&w->p, false); /* pin_memory */
    cf_pickle_tuple_end(&w->p, 5);
    cf_pickle_build(&w->p);
}

static void put_tensor(writing *w, const cf_dcp_thing *thing)
{
    const cf_item *it = tensor_of(w, thing);
    size_t n = 0;
    for (uint32_t i = thing->first; i != CF_B_NONE; i = w->dcp->items[i].next) n++;
    cf_pickle_object(&w->p, META, "TensorStorageMetadata");
    cf_filling f = fields(w, 3), list = cf_pickle_fill_list(n);
    field(w, &f, "properties");
    put_properties(w, it->dtype);
    field(w, &f, "size");
    cf_pickle_size(&w->p, it->ndim, it->tensor->shape);
    field(w, &f, "chunks");
    cf_pickle_list(&w->p);
    for (uint32_t i = thing->first; i != CF_B_NONE; i = w->dcp->items[i].next) {
        cf_pickle_item(&w->p, &list);
        cf_pickle_object(&w->p, META, "ChunkStorageMetadata");
        cf_filling c = fields(w, 2);
        field(w, &c, "offsets");
        cf_pickle_size(&w->p, it->ndim, w->dcp->items[i].at);
        field(w, &c, "sizes");
        cf_pickle_size(&w->p, it->ndim, w->dcp->items[i].size);
        end_fields(w, &c);
    }
    cf_pickle_filled(&w->p, &list);
    end_fields(w, &f);
}

static void put_name(writing *w, const char *name)
{
    cf_pickle_word(&w->p, name, strlen(name));
}

/* In the order of the files. */
static void put_state_dict(writing *w, size_t n)
{
    const cf_dcp *d = w->dcp;
    cf_pickle_dict(&w->p);
    cf_filling f = cf_pickle_fill_dict(n);
    for (size_t k = 0; k < d->count; k++) {
        const cf_dcp_thing *thing = &d->things[d->items[w->order[k]].number];
        if (thing->left_out || thing->first != w->order[k]) continue;
        cf_pickle_item(&w->p, &f);
        put_name(w, thing->name);
        if (thing->value)
            cf_pickle_object(&w->p, META, "BytesStorageMetadata");
        else
            put_tensor(w, thing);
    }
    cf_pickle_filled(&w->p, &f);
}

/* Keys of dicts are texts there, whatever they were; a number is a place in a list. */
static void put_step(writing *w, const cf_step *s)
{
    char digits[24];
    cf_text shown = {0};
    switch (s->kind) {
    case CF_STEP_TEXT: cf_pickle_word(&w->p, s->text, s->length); return;
    case CF_STEP_NUMBER:
        snprintf(digits, sizeof digits, "%lld", (long long)s->number);
        cf_pickle_text(&w->p, digits);
        return;
    case CF_STEP_KEY:
        cf_node_show(&shown, s->key, 64 << 10);
        cf_pickle_word(&w->p, shown.at ? shown.at : "", shown.size);
        cf_text_free(&shown);
        return;
    default: cf_pickle_int(&w->p, s->number);
    }
}

static void put_planner_data(writing *w, size_t n)
{
    cf_pickle_dict(&w->p);
    cf_filling f = cf_pickle_fill_dict(n);
    for (size_t i = 0; i < w->dcp->n_things; i++) {
        const cf_dcp_thing *thing = &w->dcp->things[i];
        if (thing->left_out) continue;
        const size_t steps = thing->path ? thing->path->count : 1;
        cf_pickle_item(&w->p, &f);
        put_name(w, thing->name);
        cf_pickle_tuple(&w->p, steps);
        if (!thing->path) put_name(w, thing->name);
        for (size_t k = 0; thing->path && k < steps; k++) put_step(w, &thing->path->steps[k]);
        cf_pickle_tuple_end(&w->p, steps);
    }
    cf_pickle_filled(&w->p, &f);
}

static void put_index(writing *w, const cf_dcp_thing *thing, const cf_dcp_item *item)
{
    cf_pickle_object(&w->p, META, "MetadataIndex");
    cf_filling f = fields(w, 3);
    field(w, &f, "fqn");
    put_name(w, thing->name);
    field(w, &f, "index");
    if (item->value)
        cf_pickle_none(&w->p);
    else
        cf_pickle_int(&w->p, item->index);
    field(w, &f, "offset");
    if (item->value)
        cf_pickle_none(&w->p);
    else
        cf_pickle_size(&w->p, tensor_of(w, thing)->ndim, item->at);
    end_fields(w, &f);
}

static void put_storage_data(writing *w, size_t n)
{
    const cf_dcp *d = w->dcp;
    cf_pickle_dict(&w->p);
    cf_filling f = cf_pickle_fill_dict(n);
    for (size_t k = 0; k < d->count; k++) {
        const cf_dcp_item *item = &d->items[w->order[k]];
        const cf_dcp_thing *thing = &d->things[item->number];
        const bool zstd = item->raw && item->raw->claim->zstd;
        char path[40];
        if (thing->left_out) continue;
        cf_pickle_item(&w->p, &f);
        put_index(w, thing, item);
        cf_pickle_object(&w->p, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
        cf_filling s = fields(w, zstd ? 4 : 3);
        field(w, &s, "relative_path");
        snprintf(path, sizeof path, "__%d_0.distcp", d->held[w->order[k]].keeper);
        cf_pickle_text(&w->p, path);
        field(w, &s, "offset");
        cf_pickle_int(&w->p, (int64_t)item->offset);
        field(w, &s, "length");
        cf_pickle_int(&w->p, (int64_t)item->length);
        if (zstd) {
            cf_filling list = cf_pickle_fill_list(1);
            field(w, &s, "transform_descriptors");
            cf_pickle_list(&w->p);
            cf_pickle_item(&w->p, &list);
            cf_pickle_text(&w->p, "stream.zstd/1");
            cf_pickle_filled(&w->p, &list);
        }
        end_fields(w, &s);
    }
    cf_pickle_filled(&w->p, &f);
}

static void put_storage_meta(writing *w)
{
    static const char *const ids[] = {"checkpoint_id", "save_id", "load_id"};
    cf_pickle_object(&w->p, META, "StorageMeta");
    cf_filling f = fields(w, 4);
    for (int i = 0; i < 3; i++) {
        field(w, &f, ids[i]);
        cf_pickle_none(&w->p);
    }
    cf_filling none = cf_pickle_fill_list(0);
    field(w, &f, "modules");
    cf_pickle_list(&w->p);
    cf_pickle_filled(&w->p, &none);
    end_fields(w, &f);
}

bool cf_dcp_metadata(const cf_dcp *dcp, const uint32_t *order, cf_text *out, cf_err *err)
{
    writing w = {.dcp = dcp, .order = order};
    size_t things = 0, items = 0;

    for (size_t i = 0; i < dcp->n_things; i++) things += !dcp->things[i].left_out;
    for (size_t i = 0; i < dcp->count; i++) items += !dcp->things[dcp->items[i].number].left_out;
    cf_pickler_init(&w.p, out);
    cf_pickle_object(&w.p, META, "Metadata");
    cf_filling f = fields(&w, 5);
    field(&w, &f, "state_dict_metadata");
    put_state_dict(&w, things);
    field(&w, &f, "planner_data");
    put_planner_data(&w, things);
    field(&w, &f, "storage_data");
    put_storage_data(&w, items);
    field(&w, &f, "storage_meta");
    put_storage_meta(&w);
    field(&w, &f, "version");
    cf_pickle_text(&w.p, "1.0.0");
    end_fields(&w, &f);
    const bool ok = cf_pickler_end(&w.p, err);
    cf_pickler_free(&w.p);
    return ok;
}
