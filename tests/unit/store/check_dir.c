/* Listing folders, and opening by names that may be hostile. */
#include <sys/socket.h>
#include <sys/un.h>

#include "dir.h"
#include "files.h"

static cf_arena arena;
static cf_err err;
static cf_dir listed;

static bool list(const char *a, const char *b)
{
    static const char *roots[2];
    roots[0] = a;
    roots[1] = b;
    cf_arena_init(&arena, 0);
    return cf_dir_list(&listed, roots, b ? 2 : 1, &arena, &err);
}

static void make_tree(void)
{
    ck_assert_int_eq(mkdir("c", 0777), 0);
    ck_assert_int_eq(mkdir("c/sub", 0777), 0);
    ck_assert_int_eq(mkdir("out", 0777), 0);
    put_file("c/rank10.pt", "ten");
    put_file("c/rank9.pt", "nine!");
    put_file("c/sub/.metadata", "");
    put_file("out/secret", "secret");
}

static void hostile_links(void)
{
    ck_assert_int_eq(symlink("../out/secret", "c/escape"), 0);
    ck_assert_int_eq(symlink("/etc/passwd", "c/absolute"), 0);
    ck_assert_int_eq(symlink("../out", "c/folder"), 0);
    ck_assert_int_eq(symlink("loop", "c/loop"), 0);
    ck_assert_int_eq(symlink("nothing", "c/dangling"), 0);
    ck_assert_int_eq(symlink("rank9.pt", "c/inside"), 0);
    ck_assert_int_eq(mkfifo("c/fifo", 0666), 0);
}

START_TEST(listing)
{
    make_tree();
    hostile_links();
    ck_assert_msg(list("c", NULL), "%s", err.message);
    static const char *const expected[] = {"absolute", "dangling", "escape",    "inside",
                                           "loop",     "rank9.pt", "rank10.pt", "sub/.metadata"};
    ck_assert_uint_eq(listed.count, sizeof expected / sizeof *expected);
    for (uint32_t i = 0; i < listed.count; i++) {
        uint32_t found;
        ck_assert_str_eq(listed.files[i].path, expected[i]);
        ck_assert(cf_dir_find(&listed, expected[i], &found));
        ck_assert_uint_eq(found, i);
    }
    uint32_t file;
    ck_assert(!cf_dir_find(&listed, "rank11.pt", &file));
    ck_assert(cf_dir_find(&listed, "rank9.pt", &file));
    ck_assert_uint_eq(listed.files[file].size, 5);

    int fd;
    char text[8] = "";
    ck_assert(cf_dir_open(&listed, file, &fd, &err));
    ck_assert_int_eq(read(fd, text, sizeof text), 5);
    ck_assert_str_eq(text, "nine!");
    close(fd);
    put_file("c/rank9.pt", "longer than it was");
    ck_assert(!cf_dir_open(&listed, file, &fd, &err));
    ck_assert_int_eq(err.code, CF_E_IO);
    ck_assert_str_eq(err.file, "rank9.pt");
    cf_arena_free(&arena);
}
END_TEST

START_TEST(several_roots)
{
    make_tree();
    ck_assert_int_eq(mkdir("d", 0777), 0);
    put_file("d/rank9.pt", "the other nine");
    put_file("d/rank11.pt", "");
    ck_assert(list("c/", "d"));
    ck_assert_uint_eq(listed.count, 5);
    ck_assert_str_eq(listed.files[3].path, "rank11.pt");
    ck_assert_uint_eq(listed.files[3].root, 1);
    ck_assert_str_eq(listed.files[0].path, "rank9.pt");
    ck_assert_uint_eq(listed.files[0].root, 0);
    /* the same path again: a file of its own, behind the first */
    ck_assert_str_eq(listed.files[1].path, "rank9.pt");
    ck_assert_uint_eq(listed.files[1].root, 1);
    ck_assert(listed.files[1].twin && !listed.files[0].twin && !listed.files[2].twin);
    uint32_t file;
    ck_assert(cf_dir_find(&listed, "rank9.pt", &file) && file == 0);
    ck_assert(cf_dir_find_in(&listed, "rank9.pt", 1, &file) && file == 1);
    ck_assert(!cf_dir_find_in(&listed, "rank11.pt", 0, &file));
    ck_assert(cf_dir_twin(&listed, 0, &file) && file == 1 && !cf_dir_twin(&listed, 1, &file));
    cf_arena_free(&arena);
}
END_TEST

START_TEST(single_file)
{
    make_tree();
    ck_assert_int_eq(symlink("c/rank9.pt", "mine.pt"), 0);
    ck_assert(list("mine.pt", "c/rank10.pt"));
    ck_assert_uint_eq(listed.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        int fd;
        ck_assert_msg(cf_dir_open(&listed, i, &fd, &err), "%s", err.message);
        close(fd);
    }
    int fd;
    ck_assert(!cf_beneath_open("mine.pt", "rank10.pt", &fd, NULL, &err));
    ck_assert_int_eq(err.code, CF_E_MISSING_FILE);
    cf_arena_free(&arena);

    ck_assert(!list("none", NULL));
    ck_assert_int_eq(err.code, CF_E_MISSING_FILE);
    ck_assert_str_eq(err.file, "none");
    ck_assert_int_eq(mkfifo("fifo", 0666), 0);
    ck_assert(!list("fifo", NULL));
    ck_assert_int_eq(err.code, CF_E_NOT_REGULAR);
}
END_TEST

START_TEST(links_to_folders)
{
    make_tree();
    hostile_links();
    ck_assert_int_eq(mkdir("d", 0777), 0);
    ck_assert_int_eq(symlink("sub", "c/latest2"), 0);
    ck_assert_int_eq(symlink("latest2/", "c/latest10"), 0);
    ck_assert_int_eq(symlink(".", "c/sub/here"), 0);
    ck_assert_int_eq(symlink("../sub/..", "c/sub/top"), 0);
    ck_assert_int_eq(symlink("../c/sub", "d/other"), 0);
    static const cf_dir_link expected[] = {{"latest2", "sub/"},
                                           {"latest10", "sub/"},
                                           {"other", "sub/"},
                                           {"sub/here", "sub/"},
                                           {"sub/top", ""}};
    ck_assert_msg(list("c", "d"), "%s", err.message);
    ck_assert_uint_eq(listed.n_links, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < listed.n_links; i++) {
        ck_assert_str_eq(listed.links[i].path, expected[i].path);
        ck_assert_str_eq(listed.links[i].to, expected[i].to);
    }
    cf_arena_free(&arena);
    ck_assert(list("d", NULL)); /* what leads out of all roots is none */
    ck_assert_uint_eq(listed.n_links, 0);
    cf_arena_free(&arena);
}
END_TEST

static int try_open(const char *root, const char *path)
{
    int fd;
    if (!cf_beneath_open(root, path, &fd, NULL, &err)) return err.code;
    close(fd);
    return CF_OK;
}

START_TEST(a_hubs_cache)
{
    static const char *const folders[] = {"m", "m/blobs", "m/snapshots", "m/snapshots/r",
                                          "m/snapshots/r/sub"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        ck_assert_int_eq(mkdir(folders[i], 0777), 0);
    put_file("m/blobs/5f3a", "weights");
    put_file("m/secret", "");
    ck_assert_int_eq(symlink("../secret", "m/blobs/out"), 0);
    static const struct {
        const char *target, *path;
        int code;
    } links[] = {
        {"../../blobs/5f3a", "a", CF_OK},
        {"../../../blobs/5f3a", "sub/a", CF_OK},
        {"../../blobs/none", "b", CF_E_MISSING_FILE},
        {"../../blobs/out", "c", CF_E_PATH}, /* and no further */
        {"../../blobs/../secret", "d", CF_E_PATH},
        {"../../blobs/..", "e", CF_E_PATH},
        {"../../blobs/", "f", CF_E_PATH},
        {"../../secret", "g", CF_E_PATH},
        {"../blobs/5f3a", "h", CF_E_PATH},
        {"../../../blobs/5f3a", "i", CF_E_PATH},
        {"../../blobs/5f3a", "sub/b", CF_E_PATH}, /* of snapshots/ */
    };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char at[64];
        snprintf(at, sizeof at, "m/snapshots/r/%s", links[i].path);
        ck_assert_int_eq(symlink(links[i].target, at), 0);
        ck_assert_msg(try_open("m/snapshots/r", links[i].path) == links[i].code, "%s: %s",
                      links[i].target, err.message);
    }
    /* the same folders under another name are none of a hub's */
    ck_assert_int_eq(rename("m/snapshots", "m/runs"), 0);
    ck_assert_int_eq(try_open("m/runs/r", "a"), CF_E_PATH);
}
END_TEST

START_TEST(links_that_the_user_trusts)
{
    make_tree();
    hostile_links();
    cf_follow_links = true;
    ck_assert_int_eq(try_open("c", "escape"), CF_OK);
    ck_assert_int_eq(try_open("c", "inside"), CF_OK);
    ck_assert_int_eq(try_open("c", "loop"), CF_E_PATH);
    ck_assert_int_eq(try_open("c", "fifo"), CF_E_NOT_REGULAR);
    ck_assert_int_eq(try_open("c", "../out/secret"), CF_E_PATH); /* that is a name, no link */
    cf_follow_links = false;
}
END_TEST

START_TEST(too_deep)
{
    char path[256] = "deep";
    for (int level = 0; level < 65; level++) {
        ck_assert_int_eq(mkdir(path, 0777), 0);
        strcat(path, "/d");
        if (level == 63) ck_assert(list("deep", NULL));
        if (level == 63) cf_arena_free(&arena);
    }
    ck_assert(!list("deep", NULL));
    ck_assert_int_eq(err.code, CF_E_LIMIT);
    cf_arena_free(&arena);
}
END_TEST

static const struct {
    const char *path;
    cf_code code, without_openat2; /* CF_OK: opens */
} names[] = {
    {"rank9.pt", CF_OK, CF_OK},
    {"sub/.metadata", CF_OK, CF_OK},
    {"./sub//.metadata", CF_OK, CF_OK},
    {"inside", CF_OK, CF_E_PATH},
    {"", CF_E_PATH, CF_E_PATH},
    {"..", CF_E_PATH, CF_E_PATH},
    {"sub/../rank9.pt", CF_E_PATH, CF_E_PATH},
    {"../out/secret", CF_E_PATH, CF_E_PATH},
    {"/etc/passwd", CF_E_PATH, CF_E_PATH},
    {"escape", CF_E_PATH, CF_E_PATH},
    {"absolute", CF_E_PATH, CF_E_PATH},
    {"folder/secret", CF_E_PATH, CF_E_MISSING_FILE},
    {"loop", CF_E_PATH, CF_E_PATH},
    {"dangling", CF_E_MISSING_FILE, CF_E_PATH},
    {"none", CF_E_MISSING_FILE, CF_E_MISSING_FILE},
    {"rank9.pt/x", CF_E_MISSING_FILE, CF_E_MISSING_FILE},
    {"fifo", CF_E_NOT_REGULAR, CF_E_NOT_REGULAR},
    {"socket", CF_E_NOT_REGULAR, CF_E_NOT_REGULAR},
    {"sub", CF_E_NOT_REGULAR, CF_E_NOT_REGULAR},
    {"sub/", CF_E_NOT_REGULAR, CF_E_NOT_REGULAR},
};

static void open_names(bool without_openat2)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const cf_code code = without_openat2 ? names[i].without_openat2 : names[i].code;
        int fd = -1;
        err = (cf_err){.code = CF_OK};
        ck_assert_msg(cf_beneath_open("c", names[i].path, &fd, NULL, &err) == (code == CF_OK),
                      "%s: %s", names[i].path, err.message);
        ck_assert_msg(err.code == code, "%s: %s", names[i].path, err.message);
        if (fd >= 0) close(fd);
        if (code != CF_OK) ck_assert_str_eq(err.file, names[i].path);
    }
}

static void make_hostile(void)
{
    make_tree();
    hostile_links();
    const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "c/socket"};
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(s, (const struct sockaddr *)&address, sizeof address), 0);
    close(s);
}

START_TEST(beneath)
{
    make_hostile();
    open_names(false);
}
END_TEST

/* As in a container whose filter does not know openat2. */
START_TEST(beneath_by_steps)
{
    make_hostile();
    if (refuse_call(SYS_openat2, EPERM)) open_names(true);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("dir");
    tcase_add_test(t, listing);
    tcase_add_test(t, several_roots);
    tcase_add_test(t, links_to_folders);
    tcase_add_test(t, single_file);
    tcase_add_test(t, a_hubs_cache);
    tcase_add_test(t, links_that_the_user_trusts);
    tcase_add_test(t, too_deep);
    tcase_add_test(t, beneath);
    tcase_add_test(t, beneath_by_steps);
    return run_in_folders("dir", t);
}
