/* main of a target in an ordinary build: runs it on every file of the folders named, and with
 * `--made-up N` on N random inputs, the same ones each time. */
#include <ftw.h>
#include <string.h>

#include "fuzz.h"

__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

static int files;

static int replay(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)where;
    if (kind != FTW_F) return 0;
    const size_t size = (size_t)st->st_size;
    uint8_t *bytes = malloc(size ? size : 1); /* no larger: a sanitizer guards its end */
    FILE *file = fopen(path, "rb");
    if (!bytes || !file || fread(bytes, 1, size, file) != size) return perror(path), 1;
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    files++;
    return 0;
}

/* Short ones: a target whose input patches something sound is to get through its first checks. */
static void make_up(long count)
{
    uint64_t state = 0x9e3779b97f4a7c15;
    uint8_t bytes[32];
    for (long i = 0; i < count; i++) {
        for (size_t k = 0; k < sizeof bytes; k++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes[k] = (uint8_t)(state >> 32);
        }
        LLVMFuzzerTestOneInput(bytes, 1 + (size_t)(state % (sizeof bytes - 1)));
    }
}

int main(int argc, char **argv)
{
    LLVMFuzzerInitialize(&argc, &argv);
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    if (argc == 3 && strcmp(argv[1], "--made-up") == 0) return make_up(atol(argv[2])), 0;
    for (int i = 1; i < argc; i++)
        if (nftw(argv[i], replay, 16, FTW_PHYS) != 0) return 1;
    printf("%d files\n", files);
    return files == 0;
}
