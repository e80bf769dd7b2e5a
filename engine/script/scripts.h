/* Finding plugins, policies, recipes and modules.
 *
 * Search order, first found wins and shadows the rest: --plugin FILE, each folder of
 * $CKPTFLOW_PATH, $XDG_DATA_HOME/ckptflow (default ~/.local/share/ckptflow),
 * <prefix>/share/ckptflow, the copy embedded in the binary (verbatim). Under a folder:
 * formats/NAME.lua, policies/NAME.lua, recipes/NAME.lua, and lua/ckptflow/NAME.lua for `require`. A
 * debug build (CF_SOURCE_TREE defined) reads the source tree before the embedded copy. Never the
 * working directory, except a recipe that the user named. Text only: bytecode is L_BYTECODE.
 */
#ifndef CF_SCRIPTS_H
#define CF_SCRIPTS_H

#include "arena.h"
#include "text.h"

typedef enum cf_script_kind { CF_FORMAT, CF_POLICY, CF_RECIPE, CF_MODULE } cf_script_kind;

typedef struct cf_script {
    cf_script_kind kind;
    const char *name;   /* "olmo-legacy", "unshard"; a module's: "ckptflow.torch" */
    const char *origin; /* path for people, and in tracebacks: "builtin:formats/olmo-legacy.lua" or
                           a file's path */
    const char *path;   /* to read; NULL: embedded */
    const char *text;   /* embedded text, or NULL until it was read */
    size_t size;
    const struct cf_script *shadows; /* the next of the same kind and name, or NULL */
    bool named; /* by --plugin or --format: its failure is an error, not a warning */
} cf_script;

typedef struct cf_scripts {
    cf_arena arena;
    cf_script *items; /* the winners, by kind, then name */
    size_t count, cap;
    const char **folders; /* of the search path, that were read */
    size_t n_folders, cap_folders;
    cf_text notes; /* warnings: a plugin that failed to load ... */
} cf_scripts;

/* What is on the search path; no file is read. */
bool cf_scripts_list(cf_scripts *scripts, cf_err *err);
/* files: of --plugin. A file there is a format unless it returns a recipe or policy: told by its
 * folder's name (formats, policies, recipes), else by loading it. */
bool cf_scripts_find(cf_scripts *scripts, const char *const *files, int n_files, cf_err *err);
void cf_scripts_free(cf_scripts *scripts);

/* The text of a script: embedded, or its file's (into scratch). L_BYTECODE, E_IO. */
bool cf_script_text(const cf_script *script, cf_text *scratch, const char **text, size_t *size,
                    cf_err *err);

/* NULL if there is none. */
const cf_script *cf_scripts_get(const cf_scripts *scripts, cf_script_kind kind, const char *name);

/* What the build embedded: made by cmake/embed.cmake. */
typedef struct cf_embedded {
    const char
        *path; /* "formats/olmo-legacy.lua", "recipes/unshard.lua", "lua/ckptflow/torch.lua" */
    const unsigned char *text;
    size_t size;
} cf_embedded;
extern const cf_embedded cf_embedded_files[]; /* ends with a NULL path */

#endif
