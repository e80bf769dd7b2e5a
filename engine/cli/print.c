#include "print.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"

static cf_color color;

void cf_print_in_color(cf_color when)
{
    color = when;
}

static bool colored(void)
{
    if (color != CF_COLOR_AUTO) return color == CF_COLOR_ALWAYS;
    const char *term = getenv("TERM"), *none = getenv("NO_COLOR");
    return !(none && *none) && term && strcmp(term, "dumb") != 0 && isatty(STDERR_FILENO);
}

/* A word of ours in one of the terminal's colors: 31 red, 33 yellow, 36 cyan. */
static void add_word(cf_text *out, const char *text, int number, bool in_color)
{
    if (in_color) cf_text_printf(out, "\033[1;%dm", number);
    cf_text_printf(out, "%s:", text);
    cf_text_str(out, in_color ? "\033[0m " : " ");
}

static void add_line(cf_text *out, const cf_err *err)
{
    char line[sizeof err->message + sizeof err->file + sizeof err->member + 64];
    cf_err_line(err, line, sizeof line);
    /* only what our own host wrote has more than one line: a traceback */
    const bool script = cf_code_exit(err->code) == 6;
    for (const char *p = line; *p;) {
        const size_t n = script ? strcspn(p, "\n") : strlen(p);
        cf_text_shown(out, p, n);
        p += n;
        if (*p == '\n') {
            cf_text_str(out, "\n");
            p++;
        }
    }
}

static void add_json(cf_text *out, const char *name, const char *text)
{
    cf_text_printf(out, ",\"%s\":", name);
    cf_text_json(out, text, strlen(text));
}

static void add_error(cf_text *out, const cf_err *err, bool in_color)
{
    add_word(out, cf_code_name(err->code), 31, in_color);
    add_line(out, err);
    if (err->hint[0]) {
        cf_text_str(out, "\n");
        add_word(out, "hint", 36, in_color);
        cf_text_shown(out, err->hint, strlen(err->hint));
    }
    cf_text_str(out, "\n");
}

void cf_add_error(cf_text *out, const cf_err *err)
{
    add_error(out, err, false);
}

static cf_text more; /* ,"name":value ... */

static bool is_losses(const cf_node *node)
{
    static const char *const NAMES[] = {"lost", "lost_total", "whole", "whole_total"};
    size_t n = sizeof NAMES / sizeof *NAMES;
    if (node->kind != CF_NODE_DICT || node->dict->count != n) return false;
    while (n && cf_dict_string(node->dict, NAMES[n - 1])) n--;
    return !n;
}

void cf_print_more(const char *json, size_t size)
{
    cf_arena tree;
    cf_node *root;
    cf_err err;
    cf_arena_init(&tree, 0);
    if (size && json[0] == '{' && json[size - 1] == '}' && !memchr(json, '\n', size) &&
        cf_json_read(json, size, &tree, &root, &err) && is_losses(root)) {
        cf_text_str(&more, ",");
        cf_text_add(&more, json + 1, size - 2);
    }
    cf_arena_free(&tree);
}

void cf_print_error(const cf_err *err, int status, bool json)
{
    cf_text out = {0};
    if (json) {
        char line[sizeof err->message + sizeof err->file + sizeof err->member + 64];
        cf_text_printf(&out, "{\"error\":{\"code\":\"%s\",\"exit\":%d", cf_code_name(err->code),
                       status);
        add_json(&out, "message", cf_err_line(err, line, sizeof line));
        if (err->hint[0]) add_json(&out, "hint", err->hint);
        if (err->file[0]) add_json(&out, "file", err->file);
        if (err->offset >= 0) cf_text_printf(&out, ",\"offset\":%lld", (long long)err->offset);
        if (more.at) cf_text_add(&out, more.at, more.size);
        cf_text_str(&out, "}}\n");
    } else {
        add_error(&out, err, colored());
    }
    if (out.at) fputs(out.at, stderr);
    cf_text_free(&out);
}

void cf_print_notes(const char *lines)
{
    cf_text out = {0};
    while (*lines) {
        const size_t n = strcspn(lines, "\n");
        add_word(&out, "note", 33, colored());
        cf_text_shown(&out, lines, n);
        cf_text_str(&out, "\n");
        lines += n + (lines[n] == '\n');
    }
    if (out.at) fputs(out.at, stderr);
    cf_text_free(&out);
}

void cf_add_notes(cf_text *out, const char *lines)
{
    cf_text_str(out, "\"notes\":[");
    for (bool first = true; *lines; first = false) {
        const size_t n = strcspn(lines, "\n");
        if (!first) cf_text_str(out, ",");
        cf_text_json(out, lines, n);
        lines += n + (lines[n] == '\n');
    }
    cf_text_str(out, "]");
}

bool cf_print_out(const cf_text *text, cf_err *err)
{
    if (!cf_text_ok(text, err)) return false;
    if (text->size) fwrite(text->at, 1, text->size, stdout);
    if (fflush(stdout) != 0 || ferror(stdout))
        return cf_fail_sys(err, errno, "cannot write to stdout");
    return true;
}
