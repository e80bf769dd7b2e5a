#include "join.h"

#include "storages.h"

static void move_storage(void *by, const cf_storage *s)
{
    /* made by the reading that has just ended; nobody else has it yet */
    ((cf_storage *)(uintptr_t)s)->file += *(const uint32_t *)by;
}

static void move_row(cf_storages *storages, uint32_t by, cf_row *row)
{
    if (row->alias) return; /* its pieces are the other row's */
    for (size_t i = 0; i < row->n_pieces; i++) {
        row->pieces[i].file += by;
        cf_storages_of_view(storages, row->pieces[i].view);
        if (row->pieces[i].range) cf_storages_of_view(storages, row->pieces[i].range);
    }
    for (size_t i = 0; i < row->n_values; i++) {
        row->values[i].file += by;
        cf_storages_of_node(storages, row->values[i].node);
    }
}

bool cf_join(cf_source *first, cf_source *other, cf_catalogue *cat, uint32_t root, cf_err *err)
{
    cf_source *last = first;
    uint32_t by = first->dir.count;
    for (; last->next; last = last->next) by += last->next->dir.count;
    cf_storages storages;
    cf_storages_begin(&storages, move_storage, &by);
    for (size_t i = 0; i < cat->count; i++) move_row(&storages, by, cat->rows[i]);
    other->first_root = root;
    last->next = other;
    cat->source = first;
    return cf_storages_end(&storages, err);
}
