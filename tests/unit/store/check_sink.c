/* Output that is whole or not at all. */
#include <dirent.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "files.h"
#include "sink.h"

static cf_err err;
static cf_sink sink;

/* The names in a folder, sorted, with a space behind each. */
static const char *names_in(const char *folder)
{
    static char text[512];
    struct dirent **entries;
    const int n = scandir(folder, &entries, NULL, alphasort);
    ck_assert_int_ge(n, 0);
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') strcat(strcat(text, entries[i]->d_name), " ");
        free(entries[i]);
    }
    free(entries);
    return text;
}

static void begin(const char *out, bool overwrite)
{
    ck_assert_msg(cf_sink_begin(&sink, out, overwrite, &err), "%s", err.message);
}

static void add(const char *path, const char *text)
{
    int fd;
    ck_assert_msg(cf_sink_create(&sink, path, strlen(text), &fd, &err), "%s", err.message);
    ck_assert_int_eq(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
    close(fd);
}

START_TEST(published)
{
    umask(022);
    begin("out/", false);
    ck_assert_int_eq(sink.out[0], '/');
    add("model.safetensors", "bytes");
    add("a/b/c.json", "");
    ck_assert_str_eq(names_in("."), "out.ckptflow-partial ");
    ck_assert_msg(cf_sink_commit(&sink, true, &err), "%s", err.message);
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("."), "out ");
    ck_assert_str_eq(names_in("out"), "a model.safetensors ");
    struct stat st;
    ck_assert_int_eq(stat("out/model.safetensors", &st), 0);
    ck_assert_int_eq(st.st_size, 5);
    ck_assert_uint_eq(st.st_mode, S_IFREG | 0644);
    ck_assert_int_eq(stat("out/a/b", &st), 0);
    ck_assert_uint_eq(st.st_mode, S_IFDIR | 0755);
}
END_TEST

START_TEST(discarded)
{
    begin("out", false);
    add("a/b", "x");
    int fd;
    ck_assert(cf_sink_scratch(&sink, 1 << 20, &fd, &err));
    ck_assert_str_eq(names_in("out.ckptflow-partial"), "a ");
    close(fd);
    cf_sink_discard(&sink);
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("."), "");
}
END_TEST

START_TEST(overwritten)
{
    ck_assert_int_eq(mkdir("out", 0777), 0);
    ck_assert_int_eq(mkdir("out/old", 0777), 0);
    put_file("out/old/file", "old");
    put_file("elsewhere", "kept");
    ck_assert_int_eq(symlink("../elsewhere", "out/link"), 0);
    ck_assert(!cf_sink_begin(&sink, "out", false, &err));
    ck_assert_int_eq(err.code, CF_E_EXISTS);
    begin("out", true);
    add("new", "new");
    ck_assert_str_eq(names_in("out"), "link old ");
    ck_assert_msg(cf_sink_commit(&sink, false, &err), "%s", err.message);
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("."), "elsewhere out ");
    ck_assert_str_eq(names_in("out"), "new ");

    begin("none", true); /* nothing there to replace */
    ck_assert(cf_sink_commit(&sink, false, &err));
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("."), "elsewhere none out ");
}
END_TEST

#ifdef SYS_renameat /* else the plain rename is renameat2 too */
START_TEST(poor_file_system)
{
    if (!refuse_call(SYS_renameat2, EINVAL) || !refuse_call(SYS_fallocate, EOPNOTSUPP) ||
        !refuse_call(SYS_flock, ENOLCK))
        return;
    begin("out", false);
    add("file", "first");
    cf_sink other;
    ck_assert(!cf_sink_begin(&other, "out", false, &err));
    ck_assert_int_eq(err.code, CF_E_BUSY);
    ck_assert_msg(cf_sink_commit(&sink, true, &err), "%s", err.message);
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("out"), "file ");

    begin("out", true);
    add("other", "second");
    ck_assert_msg(cf_sink_commit(&sink, true, &err), "%s", err.message);
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("."), "out ");
    ck_assert_str_eq(names_in("out"), "other ");

    begin("new", false);
    ck_assert_int_eq(mkdir("new", 0777), 0);
    ck_assert(!cf_sink_commit(&sink, false, &err));
    ck_assert_int_eq(err.code, CF_E_EXISTS);
    cf_sink_discard(&sink);
}
END_TEST
#endif

START_TEST(appeared_meanwhile)
{
    begin("out", false);
    ck_assert_int_eq(mkdir("out", 0777), 0);
    ck_assert(!cf_sink_commit(&sink, false, &err));
    ck_assert_int_eq(err.code, CF_E_EXISTS);
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("."), "out ");
}
END_TEST

START_TEST(busy_and_dead_runs)
{
    begin("out", false);
    add("half", "written");
    cf_sink other;
    ck_assert(!cf_sink_begin(&other, "out", false, &err));
    ck_assert_int_eq(err.code, CF_E_BUSY);
    close(sink.dir); /* as if the process had died */
    sink.dir = -1;
    ck_assert_msg(cf_sink_begin(&other, "out", false, &err), "%s", err.message);
    ck_assert_str_eq(names_in("out.ckptflow-partial"), "half "); /* whoever took it over says */
    ck_assert(cf_sink_empty(&other, &err));
    ck_assert_str_eq(names_in("out.ckptflow-partial"), "");
    cf_sink_discard(&other);
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("."), "");

    put_file("out.ckptflow-partial", "a file in the way");
    ck_assert(!cf_sink_begin(&sink, "out", false, &err));
    ck_assert_int_eq(err.code, CF_E_IO);
}
END_TEST

static bool wanted(const void *ctx, const char *path)
{
    (void)ctx;
    return strcmp(path, "a/kept") == 0 || strcmp(path, "resized") == 0 ||
           strcmp(path, "linked") == 0 || strcmp(path, "a/fifo") == 0;
}

/* What a run left is taken over file by file: nothing that is not planned stays, and nothing is
 * written through a link. */
START_TEST(kept)
{
    begin("out", false);
    add("a/kept", "kept");
    add("a/stray", "x");
    add("b/c/stray", "x");
    add("resized", "four");
    cf_sink_leave(&sink);
    cf_sink_leave(&sink);
    put_file("elsewhere", "four");
    ck_assert_int_eq(symlink("../elsewhere", "out.ckptflow-partial/linked"), 0);
    ck_assert_int_eq(symlink("/", "out.ckptflow-partial/root"), 0);
    ck_assert_int_eq(mkfifo("out.ckptflow-partial/a/fifo", 0600), 0);
    uint64_t held;
    begin("out", false);
    ck_assert(cf_sink_keep(&sink, wanted, NULL, &held, &err));
    ck_assert_str_eq(names_in("out.ckptflow-partial"), "a resized ");
    ck_assert_str_eq(names_in("out.ckptflow-partial/a"), "kept ");
    ck_assert_uint_gt(held, 0);
    int fd;
    char text[5] = "";
    ck_assert(cf_sink_create(&sink, "a/kept", 4, &fd, &err));
    ck_assert_int_eq(pread(fd, text, 4, 0), 4);
    ck_assert_str_eq(text, "kept");
    close(fd);
    ck_assert(cf_sink_create(&sink, "resized", 3, &fd, &err)); /* not the one that was there */
    ck_assert_int_eq(pread(fd, text, 4, 0), 3);
    ck_assert_mem_eq(text, "\0\0\0", 3);
    close(fd);
    ck_assert_int_eq(symlinkat("../elsewhere", sink.dir, "linked"), 0);
    ck_assert(cf_sink_create(&sink, "linked", 4, &fd, &err));
    ck_assert_int_eq(pwrite(fd, "mine", 4, 0), 4);
    close(fd);
    ck_assert_int_eq(linkat(AT_FDCWD, "elsewhere", sink.dir, "hard", 0), 0);
    ck_assert(cf_sink_create(&sink, "hard", 4, &fd, &err)); /* a second name of another's file */
    ck_assert_int_eq(pwrite(fd, "mine", 4, 0), 4);
    close(fd);
    fd = open("elsewhere", O_RDONLY);
    ck_assert_int_eq(pread(fd, text, 4, 0), 4);
    ck_assert_str_eq(text, "four");
    close(fd);
    put_file("out.ckptflow-partial/" CF_JOURNAL_NAME, "windows");
    ck_assert(cf_sink_commit(&sink, false, &err));
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("out"), "a hard linked resized ");
    ck_assert_int_ne(access("out/" CF_JOURNAL_NAME, F_OK), 0);
}
END_TEST

/* Processes that make and remove the same output: never both at once. */
START_TEST(raced)
{
    pid_t children[4];
    for (int c = 0; c < 4; c++) {
        children[c] = fork();
        if (children[c] > 0) continue;
        for (int got = 0; got < 50;) {
            if (!cf_sink_begin(&sink, "out", true, &err)) {
                if (err.code != CF_E_BUSY) _exit(2);
                continue;
            }
            int fd;
            if (!cf_sink_empty(&sink, &err)) _exit(5);
            if (!cf_sink_create(&sink, "only", 0, &fd, &err)) _exit(3);
            close(fd);
            if (++got % 2 == 0 && !cf_sink_commit(&sink, false, &err)) _exit(4);
            cf_sink_discard(&sink);
        }
        _exit(0);
    }
    for (int c = 0; c < 4; c++) {
        int status;
        ck_assert_int_eq(waitpid(children[c], &status, 0), children[c]);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_str_eq(names_in("."), "out ");
    ck_assert_str_eq(names_in("out"), "only ");
}
END_TEST

START_TEST(bad_places)
{
    static const struct {
        const char *out;
        cf_code code;
    } places[] = {
        {"", CF_E_USAGE},      {"/", CF_E_USAGE},     {".", CF_E_USAGE},   {"..", CF_E_USAGE},
        {"a/..", CF_E_USAGE},  {"none/out", CF_E_IO}, {"file/x", CF_E_IO}, {"/proc/x", CF_E_IO},
        {"file", CF_E_EXISTS}, {"link", CF_E_EXISTS},
    };
    put_file("file", "");
    ck_assert_int_eq(symlink("nothing", "link"), 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const bool checked = cf_sink_check(places[i].out, false, &err);
        /* /proc says only at mkdir that it cannot be written to */
        ck_assert_msg(!checked || places[i].out[0] == '/', "\"%s\"", places[i].out);
        ck_assert(!cf_sink_begin(&sink, places[i].out, false, &err));
        ck_assert_msg(err.code == places[i].code, "\"%s\": %s", places[i].out, err.message);
        cf_sink_discard(&sink);
    }
    ck_assert(cf_sink_check("x/", false, &err));
    ck_assert(cf_sink_check("file", true, &err));
}
END_TEST

START_TEST(bad_names)
{
    static const char *const names[] = {"", "/x", "../x", "a/../x", "a//x", "a/", ".", "link/x"};
    begin("out", false);
    ck_assert_int_eq(symlinkat("..", sink.dir, "link"), 0);
    add("x", "");
    int fd = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_msg(!cf_sink_create(&sink, names[i], 0, &fd, &err), "\"%s\"", names[i]);
    ck_assert(!cf_sink_create(&sink, "x", 0, &fd, &err)); /* twice */
    ck_assert_str_eq(err.file, "x");
    ck_assert(cf_sink_reserved(CF_MANIFEST_NAME) && cf_sink_reserved(CF_JOURNAL_NAME));
    ck_assert(!cf_sink_create(&sink, "huge", UINT64_MAX, &fd, &err));
    ck_assert_int_eq(err.code, CF_E_OVERFLOW);
    ck_assert(!cf_sink_create(&sink, "large", INT64_MAX - 4096, &fd, &err));
    ck_assert_int_eq(err.code, CF_E_SPACE);
    ck_assert_int_eq(fd, -1);
    cf_sink_discard(&sink);
    ck_assert_str_eq(names_in("."), "");
}
END_TEST

START_TEST(free_space)
{
    uint64_t here = 0, there = 0;
    ck_assert(cf_free_space(".", &here, &err));
    ck_assert(cf_free_space("not/there/yet/", &there, &err));
    ck_assert_uint_gt(here, 0);
    ck_assert_uint_gt(there, 0);
    ck_assert(cf_free_space("/none/at/all", &there, &err));
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("sink");
    tcase_add_test(t, published);
    tcase_add_test(t, discarded);
    tcase_add_test(t, overwritten);
#ifdef SYS_renameat
    tcase_add_test(t, poor_file_system);
#endif
    tcase_add_test(t, appeared_meanwhile);
    tcase_add_test(t, busy_and_dead_runs);
    tcase_add_test(t, kept);
    tcase_add_test(t, raced);
    tcase_add_test(t, bad_places);
    tcase_add_test(t, bad_names);
    tcase_add_test(t, free_space);
    tcase_set_timeout(t, 60);
    return run_in_folders("sink", t);
}
