/* What the files of this room share: a Lua state with its limits, error objects, handles.
 *
 * One cf_host is one Lua state for one script and the modules it requires. Lua may raise (longjmp)
 * from nearly every call, so everything that touches a state runs under cf_host_run, and what a
 * binding acquires is owned by the host or by a userdata that was made before.
 */
#ifndef CF_BIND_H
#define CF_BIND_H

#include <lauxlib.h>
#include <lua.h>

#include "host.h"
#include "pattern.h"

enum {
    CF_API = 1,
    CF_SCRIPT_MOST_MEMORY = 32 << 20, /* and 1 KiB more a row */
    CF_SCRIPT_SECONDS = 2,            /* and 10 microseconds more a row */
    CF_CALL_MOST_MEMORY = 1 << 30, /* of our own, on a script's behalf: keys walked, values read */
    CF_MOST_PLACEHOLDERS = 32,
    CF_MOST_KEY = 64 << 10
};

/* Every {placeholder} that patterns of a format have, so that `file.tp` is nil where another
 * pattern has it, and a misspelling elsewhere. */
typedef struct cf_placeholders {
    int count;
    char names[CF_MOST_PLACEHOLDERS][32];
} cf_placeholders;

/* What `detect` asked of the folder: a pattern, of several at once the one that fits, or the first.
 */
enum { CF_MOST_PROBES = 48 };
typedef struct cf_probe {
    char pattern[64];
    bool hit;
} cf_probe;

typedef struct cf_probes {
    int count;
    cf_probe items[CF_MOST_PROBES];
} cf_probes;

/* The formats whose `detect` found something of what it looked for, nearest first (guess.c). */
enum { CF_MOST_GUESSES = 3 };
typedef struct cf_guesses {
    struct {
        char text[200]; /* "llama (params.json is here, consolidated.00.pth is not)" */
        int found, missing;
    } items[CF_MOST_GUESSES];
    int count;
} cf_guesses;

void cf_guess(cf_guesses *guesses, const cf_source *source, const char *format,
              const cf_probes *probes);
/* E_MAGIC with what the files are, and how to look into one. */
void cf_guess_say(const cf_source *source, cf_err *err);
/* A hint, if there are guesses. */
bool cf_guess_hint(const cf_guesses *guesses, cf_err *err);

typedef struct cf_host {
    lua_State *L;
    const cf_scripts *scripts;
    cf_source *source; /* what `dir` and files read; NULL in a state without a checkpoint */
    cf_part *part;     /* what `out` fills, during `read` */
    cf_plan *plan;
    cf_probes *probes; /* what `detect` asked for; NULL: nobody wants to know */
    int notes;         /* that `dir` may still make: in `files`, which is called once */
    cf_placeholders placeholders;
    uint64_t rows;     /* what the limits grow by: rows given so far, or of the catalogue */
    cf_code tripped;   /* the limit that was hit: nothing catches it */
    cf_err unreadable; /* the first file whose root could not be read, in this call */

    /* of the current call, see cf_host_run */
    uint32_t call;
    cf_arena arena;
    cf_map reach; /* walk: does a tensor lie below this list or tuple? */
    cf_tree **pins;
    size_t n_pins, cap_pins;
    int64_t since, elsewhere; /* CPU time: when the call began, what was not the script's */
    cf_text text;             /* scratch of whoever prints */

    size_t memory;
    size_t read; /* bytes of the arena that pickle.read took out of tensors, in this call */
    size_t
        decoded; /* bytes of the arena that texts of the script were decoded into, in this call */
} cf_host;

/* For tests: a full collection at every new handle and every few instructions. */
extern bool cf_host_stress;

/* ---- host.c */
/* A state with its environment, but no script. */
bool cf_host_start(cf_host *host, const cf_scripts *scripts, cf_source *source, cf_err *err);
void cf_host_stop(cf_host *host);
/* One call of a hook, protected and limited: job gets `arg` as light userdata 1. When it returns
 * the trees it touched are unpinned, its arena is emptied and its node handles are dead. */
bool cf_host_run(cf_host *host, lua_CFunction job, void *arg, cf_err *err);
static inline cf_host *cf_host_of(lua_State *L)
{
    return *(cf_host **)lua_getextraspace(L);
}
/* What a script may hold, in bytes: it grows with the rows. */
size_t cf_host_most_memory(const cf_host *host);
/* Raises L_LIMIT_MEM, which nothing catches. */
int cf_host_too_much(lua_State *L);
/* The same if what is kept on the script's behalf (views, rows, notes) is too much. */
void cf_host_check_kept(lua_State *L);
/* One row more is given, which raises the limits; beyond what the files read can hold it does not,
 * or a script could raise them for ever. */
void cf_host_count_row(lua_State *L);
/* Around decoding what a script hands in into the call's arena: what comes out counts like memory
 * of the script, since a text of some MiB may become a tree of hundreds. `after` raises
 * L_LIMIT_MEM. */
size_t cf_host_before_decoding(cf_host *host);
void cf_host_after_decoding(lua_State *L, size_t before);
/* The host's scratch text, emptied. */
cf_text *cf_scratch(lua_State *L);
/* The tree of a file for the rest of this call. */
bool cf_host_pin(cf_host *host, uint32_t file, cf_tree **tree, cf_err *err);
/* Around work of ours that a script asked for and should not be charged with. */
int64_t cf_host_pause(void);
void cf_host_resume(cf_host *host, int64_t paused);
/* The same for work that a script may ask for again and again: free of charge for so many units of
 * 20 microseconds, no more. */
void cf_host_resume_after(cf_host *host, int64_t paused, size_t units);

/* ---- raise.c */
void cf_raise_register(lua_State *L);
/* Raise an error object: bad data, a refusal, a limit. */
int cf_raise(lua_State *L, const cf_err *err);
int cf_raise_code(lua_State *L, cf_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The error object at an index, or NULL. */
const cf_err *cf_raised(lua_State *L, int index);
/* lua_pcall's message handler: turns what is no error object into L_ERROR with a traceback. */
int cf_explain(lua_State *L);
/* The nearest of a list of names that ends with NULL; NULL if none is near. */
const char *cf_nearest(const char *word, const char *const *names);
/* "; did you mean 'x'?" or "", pushed. */
const char *cf_push_guess(lua_State *L, const char *word, const char *const *names);

/* ---- handle.c */
typedef struct cf_handle {
    const char *name; /* "file": __name, and the key of the metatable */
    const luaL_Reg *methods;
    const char *const *fields; /* ends with NULL */
    /* Pushes a field of the handle at 1; false: it has none of that name. */
    bool (*field)(lua_State *L, const char *key);
    const luaL_Reg *meta; /* __tostring, __gc, __len ...; may be NULL */
} cf_handle;

void cf_handle_register(lua_State *L, const cf_handle *handle);
/* An empty userdata of that type, cleared. */
void *cf_new(lua_State *L, size_t size, int uservalues, const char *name);
/* What every `refuse` does: raises the code (another one, if argument 4 names it) with the message
 * and hint at 2 and 3. */
int cf_refuse(lua_State *L, cf_code code, const char *file);

/* ---- env.c: the globals of a state, as its registry's LUA_RIDX_GLOBALS and every chunk's _ENV */
void cf_env_open(lua_State *L);

/* ---- pairs.c */
int cf_pairs(lua_State *L);

/* ---- load.c */
/* Pushes what a script returns, run in this state's environment. Raises L_BYTECODE and what the
 * script does. */
void cf_load_script(lua_State *L, const cf_script *script);
/* The same, and holds the table against what its kind has: api, fields, types. */
void cf_load_table(lua_State *L, const cf_script *script);
/* `require` of scripts. */
int cf_require(lua_State *L);
/* Is the table at the top a recipe, a policy or a format? */
cf_script_kind cf_load_kind(lua_State *L);

/* ---- policy.c */
/* A policy by name or file, loaded, as an opaque handle. */
void cf_push_policy(lua_State *L, const char *name);
bool cf_is_policy(lua_State *L, int index);
/* Asks the policy at an index; load as in cf_policy_place. Raises what the policy does. */
void cf_policy_walk(lua_State *L, int index, cf_held *items, size_t count, int32_t ranks,
                    double *load);

/* ---- scripts.c */
/* The text of a script: embedded, or its file's (into host's scratch). */
bool cf_script_text(const cf_script *script, cf_text *scratch, const char **text, size_t *size,
                    cf_err *err);
/* A script that lies at a path; everything in arena. */
cf_script *cf_script_at(cf_arena *arena, cf_script_kind kind, const char *path);
/* What the user named: a script by its name, with or without .lua, else a file. NULL: E_USAGE. */
const cf_script *cf_script_named(const cf_scripts *scripts, cf_arena *arena, cf_script_kind kind,
                                 const char *name, cf_err *err);
/* E_USAGE: "no recipe is called x", with the names there are. */
bool cf_script_unknown(const cf_scripts *scripts, cf_script_kind kind, const char *name,
                       cf_err *err);
const char *cf_script_kind_name(cf_script_kind kind);

/* ---- the handle types: bind_*.c */
void cf_bind_dir(lua_State *L);
void cf_bind_file(lua_State *L);
void cf_bind_node(lua_State *L);
void cf_bind_view(lua_State *L);
void cf_bind_out(lua_State *L);
void cf_bind_cat(lua_State *L);
void cf_bind_plan(lua_State *L);
void cf_bind_walk(lua_State *L);

cf_part *cf_check_out(lua_State *L); /* what `out` at 1 fills */
int cf_out_items(lua_State *L);      /* bind_items.c */

void cf_push_dir(lua_State *L);
void cf_push_out(lua_State *L);
void cf_push_plan(lua_State *L);

/* ---- bind_path.c */
/* A list of steps as a path of the call's arena; raises what is wrong with it. */
const cf_path *cf_check_path(lua_State *L, int index);
/* nil where a list cannot say it: a key that is neither string nor integer. */
void cf_push_path(lua_State *L, const cf_path *path);

typedef struct cf_file_handle {
    uint32_t file;
    int32_t rank; /* -1: no {rank} */
    int count;
    cf_capture captures[];
} cf_file_handle;

/* captures may be NULL. Raises E_NUMBER for a rank beyond 31 bits. */
void cf_push_file(lua_State *L, uint32_t file, const cf_captures *captures);
const cf_file_handle *cf_check_file(lua_State *L, int index);
const cf_node *cf_file_root(lua_State *L, const cf_file_handle *file); /* raises what is wrong */

/* A handle of any node, and what Lua sees of one: numbers, strings, booleans, nil, views, dtypes
 * as text, else a handle. `lasting`: it is not of a tree that goes with this call. */
void cf_push_node(lua_State *L, const cf_node *node, bool lasting);
void cf_push_value(lua_State *L, const cf_node *node, bool lasting);
/* NULL if there is no node handle at the index. Raises if its tree is gone. */
const cf_node *cf_test_node(lua_State *L, int index);
/* Any value as a node of the call's arena; texts are borrowed from the Lua string. */
const cf_node *cf_to_node(lua_State *L, int index);
const char *cf_class_of(lua_State *L, int index);
int cf_node_next(lua_State *L); /* next(node, key) */
int cf_class_function(lua_State *L);
int cf_numel_function(lua_State *L);

/* A shape, offsets or the like: a list or node of integers. Returns how many. */
int cf_check_shape(lua_State *L, int index, int64_t sizes[CF_MOST_DIMS]);
cf_dtype cf_check_dtype(lua_State *L, int index);

/* Where views are made: a plan keeps those it writes. */
static inline cf_arena *cf_view_arena(lua_State *L)
{
    cf_host *host = cf_host_of(L);
    return host->plan ? &host->plan->arena : &host->arena;
}
void cf_push_view(lua_State *L, const cf_view *view); /* which lives as long as this call */
int cf_push_tensor(lua_State *L, const cf_tensor *tensor, const cf_err *err);
bool cf_is_view(lua_State *L, int index);
const cf_tensor *cf_check_tensor(lua_State *L, int index);
const cf_tensor *cf_test_tensor(lua_State *L, int index); /* NULL: no view */
/* The one view that a view handle is; NULL where it is made of several. */
const cf_view *cf_leaf_view(lua_State *L, int index);
void cf_push_sizes(lua_State *L, int count, const int64_t *sizes); /* a fresh list */

int cf_file_walk(lua_State *L);
int cf_json_module(lua_State *L); /* pushes the table of ckptflow.json */
int cf_pickle_module(lua_State *L);

typedef struct cf_selection {
    cf_catalogue *cat;
    cf_arena arena; /* of names that `rename` made */
    cf_map index;   /* of `find`, made at its first use */
    bool indexed;
    size_t count;
    cf_entry entries[]; /* name and row; uservalue 1 keeps the selection that names came from */
} cf_selection;

void cf_push_catalogue(lua_State *L, cf_catalogue *cat);
const cf_selection *cf_test_selection(lua_State *L, int index);
cf_row *cf_test_row(lua_State *L, int index);

#endif
