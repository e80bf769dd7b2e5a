#include "planned.h"

#include <string.h>

#include "fuzz.h"
#include "layout.h"

void fuzz_scripts(cf_scripts *scripts)
{
    cf_err err;
    unsetenv("CKPTFLOW_PATH");
    setenv("XDG_DATA_HOME", "/nonexistent", 1);
    CLAIM(cf_scripts_find(scripts, NULL, 0, &err));
}

const char *fuzz_fixture(const char *name)
{
    const char *folder = getenv("CF_FIXTURES");
    CLAIM(folder);
    char *path = malloc(strlen(folder) + strlen(name) + 2);
    sprintf(path, "%s/%s", folder, name);
    return path;
}

bool fuzz_plan(cf_scripts *scripts, cf_catalogue *cat, cf_text *block, cf_err *err)
{
    cf_recipe recipe;
    cf_plan plan;
    cf_blocker b = {0};
    CF_TRY(cf_recipe_load(&recipe, scripts, "convert", err));
    cf_plan_init(&plan, cat);
    plan.replicas = CF_REPLICAS_COMPARE;
    bool ok = cf_recipe_plan(&recipe, scripts, cat, &plan, NULL, 0, err) &&
              cf_plan_finish(&plan, err) && cf_plan_layout(&plan, &b, err);
    for (int i = 0; ok && i < CF_B_TEXTS; i++) b.text[i] = cf_blocker_text(&b, "", 0);
    ok = ok && cf_blocker_finish(&b, block, err);
    cf_blocker_free(&b);
    cf_plan_free(&plan);
    cf_recipe_free(&recipe);
    return ok;
}
