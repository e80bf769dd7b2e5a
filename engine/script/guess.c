/* A folder that no format knows: what lies in it, and which formats come near.
 *
 * How near one comes is what its `detect` looked for and found: patterns of names that say
 * something (`*.pt` does not), or a name that fits but for its suffix.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "pattern.h"

enum { MOST_GROUPS = 32, SHOWN = 3, MOST_LOOKED_AT = 1 << 12, SHORT = 48 };

static void add(char *text, size_t size, const char *fmt, ...)
{
    const size_t at = strlen(text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + at, size - at, fmt, args);
    va_end(args);
}

/* ---- formats */

/* Letters and digits that a name must have, its suffix not counted. */
static bool telling(const char *pattern)
{
    const char *end = strrchr(pattern, '.');
    if (!end || end == pattern) end = pattern + strlen(pattern);
    int letters = 0, depth = 0;
    for (const char *at = pattern; at < end; at++) {
        depth += (*at == '{') - (*at == '}');
        letters += depth == 0 && isalnum((unsigned char)*at);
    }
    return letters >= 3;
}

/* Up to the suffix; "" if there is none in the last name. */
static void stem(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    const bool suffix = dot && dot > (slash ? slash + 1 : path) && !strpbrk(dot, "{}*");
    snprintf(out, size, "%.*s", suffix && dot < path + size ? (int)(dot - path) : 0, path);
}

static bool holds_data(const cf_source *source, uint32_t file)
{
    cf_content content;
    cf_err err;
    return cf_source_content(source, file, &content, &err) && content >= CF_CONTENT_TORCH &&
           content <= CF_CONTENT_SAFETENSORS;
}

/* A file of data that would fit if its suffix were another. */
static const char *but_for_suffix(const cf_source *source, const char *pattern)
{
    char want[64], have[512];
    cf_err err;
    stem(pattern, want, sizeof want);
    if (!*want || !cf_pattern_check(want, &err)) return NULL;
    for (uint32_t i = 0; i < source->dir.count && i < MOST_LOOKED_AT; i++) {
        const char *path = source->dir.files[i].path;
        stem(path, have, sizeof have);
        if (cf_pattern_match(want, *have ? have : path, NULL) && holds_data(source, i)) return path;
    }
    return NULL;
}

void cf_guess(cf_guesses *guesses, const cf_source *source, const char *format,
              const cf_probes *probes)
{
    char text[sizeof guesses->items->text];
    const char *near = NULL, *lacks = NULL;
    int found = 0, missing = 0;
    snprintf(text, sizeof text, "%s (", format);
    for (int i = 0; i < probes->count; i++) {
        const cf_probe *probe = &probes->items[i];
        if (!telling(probe->pattern)) continue;
        if (probe->hit) {
            if (found++ < 2)
                add(text, sizeof text, "%s%s", found == 1 ? "" : " and ", probe->pattern);
        } else {
            missing++;
            if (!lacks) lacks = probe->pattern;
        }
    }
    if (found > 0 && lacks) {
        add(text, sizeof text, " %s here, %s is not)", found == 1 ? "is" : "are", lacks);
    } else if (found > 0) {
        add(text, sizeof text, " %s here)", found == 1 ? "is" : "are");
    } else {
        for (int i = 0; !near && i < probes->count; i++) {
            lacks = probes->items[i].pattern;
            if (telling(lacks)) near = but_for_suffix(source, lacks);
        }
        if (!near || strlen(near) > SHORT) return;
        add(text, sizeof text, "%s would be here as %s)", near, lacks);
    }
    if (strlen(text) + 1 == sizeof text) return; /* it was cut */
    int at = guesses->count;
    while (at > 0 &&
           (guesses->items[at - 1].found < found ||
            (guesses->items[at - 1].found == found && guesses->items[at - 1].missing > missing)))
        at--;
    if (at == CF_MOST_GUESSES) return;
    if (guesses->count < CF_MOST_GUESSES) guesses->count++;
    memmove(&guesses->items[at + 1], &guesses->items[at],
            (size_t)(guesses->count - at - 1) * sizeof *guesses->items);
    strcpy(guesses->items[at].text, text);
    guesses->items[at].found = found;
    guesses->items[at].missing = missing;
}

bool cf_guess_hint(const cf_guesses *guesses, cf_err *err)
{
    char hint[sizeof err->hint] = "it comes near ";
    for (int i = 0; i < guesses->count; i++) {
        const char *text = guesses->items[i].text;
        if (strlen(hint) + strlen(text) + 3 >= sizeof hint) break;
        add(hint, sizeof hint, "%s%s", i ? ", " : "", text);
    }
    if (guesses->count) cf_err_set_hint(err, "%s", hint);
    return guesses->count > 0;
}

/* ---- files */

/* Have they one name, but for digits? */
static bool alike(const char *a, const char *b)
{
    for (;;) {
        const bool digits = isdigit((unsigned char)*a) && isdigit((unsigned char)*b);
        if (digits) {
            while (isdigit((unsigned char)*a)) a++;
            while (isdigit((unsigned char)*b)) b++;
        } else if (*a != *b) {
            return false;
        } else if (!*a) {
            return true;
        } else {
            a++, b++;
        }
    }
}

static const char *what(const cf_source *source, uint32_t file)
{
    static const char *const words[] = {[CF_CONTENT_UNKNOWN] = "no kind that is known",
                                        [CF_CONTENT_EMPTY] = "empty",
                                        [CF_CONTENT_TORCH] = "torch.save",
                                        [CF_CONTENT_NPZ] = "npz",
                                        [CF_CONTENT_STREAM] = "torch.save's stream",
                                        [CF_CONTENT_NPY] = "npy",
                                        [CF_CONTENT_PICKLE] = "a pickle",
                                        [CF_CONTENT_SAFETENSORS] = "safetensors",
                                        [CF_CONTENT_JSON] = "JSON",
                                        [CF_CONTENT_TEXT] = "text",
                                        [CF_CONTENT_LFS] = "a Git LFS pointer"};
    cf_content content;
    cf_err err;
    return cf_source_content(source, file, &content, &err) ? words[content] : "cannot be opened";
}

typedef struct group {
    uint32_t first, count;
    uint64_t bytes;
} group;

/* The most first. */
static int by_bytes(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->first < y->first ? -1 : x->first > y->first;
}

void cf_guess_say(const cf_source *source, cf_err *err)
{
    const cf_dir *dir = &source->dir;
    if (dir->count == 0) {
        cf_err_set(err, CF_E_MAGIC, "there are no files");
        return;
    }
    group groups[MOST_GROUPS];
    int n = 0;
    uint32_t others = dir->count;
    for (uint32_t i = 0; i < dir->count; i++) {
        int g = 0;
        while (g < n && !alike(dir->files[groups[g].first].path, dir->files[i].path)) g++;
        if (g == MOST_GROUPS) continue;
        if (g == n) {
            groups[n++] = (group){.first = i};
        }
        groups[g].count++;
        groups[g].bytes += dir->files[i].size;
    }
    qsort(groups, (size_t)n, sizeof *groups, by_bytes);
    uint32_t data = dir->count;
    char text[sizeof err->message] = "";
    for (int g = 0; g < n && g < SHOWN; g++) {
        others -= groups[g].count;
        add(text, sizeof text, "%s%.200s", g ? ", " : "", dir->files[groups[g].first].path);
        if (groups[g].count > 1) add(text, sizeof text, " and %u like it", groups[g].count - 1);
        add(text, sizeof text, " (%s)", what(source, groups[g].first));
        if (data == dir->count && holds_data(source, groups[g].first)) data = groups[g].first;
    }
    if (others) add(text, sizeof text, ", %u more", others);
    cf_err_set(err, CF_E_MAGIC, "no format recognised among %u file%s: %s", dir->count,
               dir->count == 1 ? "" : "s", text);
    if (data == dir->count) return;
    const cf_dir_file *file = &dir->files[data];
    cf_err_set_hint(err, "`ckptflow inspect %s/%s` shows what is in that file",
                    dir->roots[file->root], file->stored);
}
