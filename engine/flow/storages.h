/* Every storage that a value's tree leads to. */
#ifndef CF_STORAGES_H
#define CF_STORAGES_H

#include "map.h"
#include "node.h"

typedef struct cf_storages {
    void (*take)(void *ctx, const cf_storage *storage);
    void *ctx;
    cf_arena arena; /* the caller's to begin and free */
    cf_map seen;    /* addresses: each is taken once */
} cf_storages;

void cf_storages_begin(cf_storages *s, void (*take)(void *ctx, const cf_storage *storage),
                       void *ctx);
void cf_storages_of_view(cf_storages *s, const cf_view *view);
void cf_storages_of_node(cf_storages *s, const cf_node *node);
/* False: memory failed, and not all were taken. */
bool cf_storages_end(cf_storages *s, cf_err *err);

#endif
