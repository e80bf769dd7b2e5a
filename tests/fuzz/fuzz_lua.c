/* A byte string as a format plugin, in the real host, on a small checkpoint: limits hold (libFuzzer
 * watches time and memory), and what a script makes of the files either is refused or becomes a
 * plan that the other process accepts. */
#include <string.h>

#include "block.h"
#include "fuzz.h"
#include "planned.h"

static cf_scripts scripts;
static cf_script *script;
static cf_source source;
static const char *root;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    cf_err err;
    fuzz_scripts(&scripts);
    script = (cf_script *)cf_scripts_get(&scripts, CF_FORMAT, "hf-bin"); /* its place and name */
    CLAIM(script);
    script->origin = "fuzz.lua";
    script->path = NULL;
    root = fuzz_fixture("ranks/whole");
    CLAIM(cf_source_open(&source, &root, 1, false, &err));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cf_catalogue cat;
    cf_text bytes = {0};
    cf_block block;
    cf_err err = {0};
    script->text = size ? (const char *)data : "";
    script->size = size;
    cf_catalogue_init(&cat, &source);
    if (cf_host_read(&scripts, &source, script->name, 1, &cat, &err)) {
        if (fuzz_plan(&scripts, &cat, &bytes, &err))
            CLAIM(cf_block_open(&block, bytes.at, bytes.size, 1, &err));
    }
    CLAIM(err.code != CF_E_INTERNAL && err.code != CF_E_MEMORY);
    cf_text_free(&bytes);
    cf_catalogue_free(&cat);
    return 0;
}
