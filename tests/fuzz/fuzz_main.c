/* SPDX-License-Identifier: MIT
 *
 * fuzz_main.c - runs a fuzz target without a fuzzer.
 *
 *   fuzz_url FOLDER...
 *
 * Every file of the folders goes to the target: as it is, cut off after each
 * of its bytes, and with each of its bits flipped. That is no search, but it
 * is the same every time, needs no special compiler, and meets the mistakes
 * that readers usually make. Exit code 0 when the target came back from all of
 * it; a target that finds something aborts.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A longer seed is fed whole, but only this much of it is cut and flipped. */
#define VARY_MAX 2048

static unsigned long inputs; /* fed so far */

/* Hands over a copy of its exact size, so that a sanitizer sees a read beyond
 * the end. */
static void feed(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);

    if (!copy)
        abort();
    memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    inputs++;
}

static void feed_variants(uint8_t *data, size_t size)
{
    size_t vary = size < VARY_MAX ? size : VARY_MAX;

    feed(data, size);
    for (size_t len = 0; len < vary; len++)
        feed(data, len);
    for (size_t bit = 0; bit < vary * 8; bit++) {
        uint8_t mask = (uint8_t)(1u << (bit % 8));
        data[bit / 8] ^= mask;
        feed(data, size);
        data[bit / 8] ^= mask;
    }
}

/* Reads a whole file; NULL when that cannot be done. */
static uint8_t *read_all(const char *path, size_t *size)
{
    uint8_t *data = NULL;
    FILE *f = fopen(path, "rb");

    if (!f)
        return NULL;
    if (fseek(f, 0, SEEK_END) == 0) {
        long end = ftell(f);
        rewind(f);
        if (end >= 0)
            data = malloc((size_t)end + 1);
        if (data)
            *size = fread(data, 1, (size_t)end, f);
    }
    fclose(f);
    return data;
}

static int run_file(const char *folder, const char *name)
{
    char path[4096];
    size_t size = 0;
    int len = snprintf(path, sizeof path, "%s/%s", folder, name);

    if (len < 0 || (size_t)len >= sizeof path) {
        fprintf(stderr, "%s/%s: name too long\n", folder, name);
        return 1;
    }
    uint8_t *data = read_all(path, &size);
    if (!data) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    feed_variants(data, size);
    free(data);
    return 0;
}

static int run_folder(const char *folder)
{
    struct dirent *entry;
    unsigned long files = 0;
    int failed = 0;
    DIR *dir = opendir(folder);

    if (!dir) {
        fprintf(stderr, "%s: %s\n", folder, strerror(errno));
        return 1;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        failed |= run_file(folder, entry->d_name);
        files++;
    }
    closedir(dir);
    if (files == 0) {
        fprintf(stderr, "%s: no seeds\n", folder);
        return 1;
    }
    printf("%s: %lu seeds, %lu inputs so far\n", folder, files, inputs);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++)
        failed |= run_folder(argv[i]);
    return failed;
}
