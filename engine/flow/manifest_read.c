#include "manifest_read.h"

#include <stdlib.h>
#include <string.h>

static bool wrong(const char *what, cf_err *err)
{
    return cf_fail(err, CF_E_JSON, "%s is not as a manifest has it", what);
}

static bool text_of(cf_arena *arena, const cf_node *node, const char *field, const char **out)
{
    const cf_node *n = node->kind == CF_NODE_DICT ? cf_dict_string(node->dict, field) : NULL;
    if (!n || n->kind != CF_NODE_STRING || memchr(n->text.at, 0, n->text.length)) return false;
    return (*out = cf_strndup(arena, n->text.at, n->text.length)) != NULL;
}

static bool size_of(const cf_node *node, const char *field, uint64_t *out)
{
    const cf_node *n = node->kind == CF_NODE_DICT ? cf_dict_string(node->dict, field) : NULL;
    if (!n || n->kind != CF_NODE_INT || n->integer < 0) return false;
    *out = (uint64_t)n->integer;
    return true;
}

/* Eight hexadecimal digits. */
static bool crc_of(const cf_node *node, uint32_t *crc)
{
    const cf_node *n = node->kind == CF_NODE_DICT ? cf_dict_string(node->dict, "crc32") : NULL;
    if (!n || n->kind != CF_NODE_STRING || n->text.length != 8) return false;
    char digits[9] = "", *end;
    memcpy(digits, n->text.at, 8);
    if (strspn(digits, "0123456789abcdef") != 8) return false;
    *crc = (uint32_t)strtoul(digits, &end, 16);
    return true;
}

static bool read_file(const cf_node *node, cf_arena *arena, cf_manifest_file *f, cf_err *err)
{
    const cf_node *tensors =
        node->kind == CF_NODE_DICT ? cf_dict_string(node->dict, "tensors") : NULL;
    if (!text_of(arena, node, "path", &f->path) || !size_of(node, "size", &f->size) ||
        !crc_of(node, &f->crc) || !tensors || tensors->kind != CF_NODE_LIST)
        return wrong("a file", err);
    const cf_list *list = tensors->list;
    f->tensors = CF_NEWS(arena, cf_manifest_tensor, list->count + 1);
    uint64_t at = 0;
    for (size_t i = 0; f->tensors && i < list->count; i++) {
        cf_manifest_tensor *t = &f->tensors[i];
        if (!text_of(arena, list->items[i], "name", &t->name) ||
            !size_of(list->items[i], "offset", &t->offset) ||
            !size_of(list->items[i], "size", &t->size) || !crc_of(list->items[i], &t->crc) ||
            t->offset < at || t->offset > f->size || t->size > f->size - t->offset)
            return wrong("a tensor", err);
        at = t->offset + t->size;
    }
    f->count = list->count;
    return cf_arena_ok(arena, err);
}

static bool read_root(const cf_node *root, cf_arena *arena, cf_manifest *m, cf_err *err)
{
    const cf_node *schema =
        root->kind == CF_NODE_DICT ? cf_dict_string(root->dict, "schema") : NULL;
    const cf_node *files = root->kind == CF_NODE_DICT ? cf_dict_string(root->dict, "files") : NULL;
    static const char NAME[] = "ckptflow.manifest/1";
    if (!schema || schema->kind != CF_NODE_STRING || schema->text.length != sizeof NAME - 1 ||
        memcmp(schema->text.at, NAME, sizeof NAME - 1) != 0 || !files ||
        files->kind != CF_NODE_LIST)
        return wrong("it", err);
    cf_map_init(&m->paths, arena);
    m->files = CF_NEWS(arena, cf_manifest_file, files->list->count + 1);
    if (!m->files) return cf_arena_ok(arena, err);
    for (size_t i = 0; i < files->list->count; i++) {
        cf_manifest_file *f = &m->files[i];
        bool fresh = false;
        if (!read_file(files->list->items[i], arena, f, err)) return false;
        uint64_t *number = cf_map_put(&m->paths, f->path, strlen(f->path), &fresh);
        if (!number) return cf_arena_ok(arena, err);
        if (!fresh) return cf_fail(err, CF_E_DUP_KEY, "it lists %s twice", f->path);
        *number = i;
        m->count = i + 1;
    }
    return true;
}

bool cf_manifest_read(cf_source *source, cf_arena *arena, const cf_manifest **manifest, cf_err *err)
{
    uint32_t file;
    cf_tree *tree;
    *manifest = NULL;
    if (!cf_dir_find(&source->dir, CF_MANIFEST, &file)) return true;
    if (!cf_source_pin(source, file, &tree, err)) return cf_faults_take(source->faults, err);
    cf_manifest *m = CF_NEW(arena, cf_manifest);
    const bool ok = m ? read_root(tree->root, arena, m, err) : cf_arena_ok(arena, err);
    cf_source_unpin(source, tree);
    if (!ok) {
        cf_err_in_file(err, CF_MANIFEST);
        return cf_faults_take(source->faults, err);
    }
    *manifest = m;
    return true;
}

const cf_manifest_file *cf_manifest_find(const cf_manifest *m, const char *path)
{
    uint64_t number;
    return m && cf_map_get(&m->paths, path, strlen(path), &number) ? &m->files[number] : NULL;
}
